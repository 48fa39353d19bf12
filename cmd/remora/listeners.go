package main

import (
	"context"
	"fmt"
	"net"
	"os"
)

// listeners are the listeners of a proxy. They are opened first, so that an address in use is the first error. Early connections
// wait in the backlog.
type listeners struct {
	clients, operators net.Listener // operators is nil without server.admin_listen
}

// place names where this proxy runs: an earlier process with its address on its host has ended. It is "" where the host has no name.
func (l listeners) place() string {
	host, err := os.Hostname()
	if err != nil {
		return ""
	}
	return host + " " + l.clients.Addr().String()
}

func openListeners(ctx context.Context, c Config) (l listeners, err error) {
	for _, a := range []struct {
		key, addr string
		to        *net.Listener
	}{{"server.listen", c.Server.Listen, &l.clients}, {"server.admin_listen", c.Server.AdminListen, &l.operators}} {
		if a.addr == "" {
			continue
		}
		if *a.to, err = (&net.ListenConfig{}).Listen(ctx, "tcp", a.addr); err != nil {
			l.close()
			return listeners{}, fmt.Errorf("open %s %s: %w", a.key, a.addr, err)
		}
	}
	return l, nil
}

// addresses returns the addresses for clients and operators, "" for none.
func (l listeners) addresses() (clients, operators string) {
	if l.operators != nil {
		operators = l.operators.Addr().String()
	}
	return l.clients.Addr().String(), operators
}

// close closes the listeners that no server has closed.
func (l listeners) close() {
	for _, ln := range []net.Listener{l.clients, l.operators} {
		if ln != nil {
			_ = ln.Close()
		}
	}
}
