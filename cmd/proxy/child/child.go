// Package child runs a proxy as a process of its own, for programs that show one or measure it.
package child

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// Environ is that of this process without what configures a proxy: the caller's own settings are not for a child's
// configuration.
func Environ() []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "REMORA_") {
			env = append(env, v)
		}
	}
	return env
}

// Proxy is a running process. Its methods are for one caller at a time.
type Proxy struct {
	// URL is the origin where it listens, without a path.
	URL string

	cmd   *exec.Cmd
	said  *reader
	ended chan struct{} // closed when the process has ended and err is set
	err   error
}

// Start starts the command of a proxy, whose stderr it takes, and returns when that listens. The end of the command's
// context kills it; Kill or Stop must be called all the same.
func Start(cmd *exec.Cmd) (*Proxy, error) {
	p := &Proxy{cmd: cmd, said: newReader(), ended: make(chan struct{})}
	cmd.Stderr = p.said
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start proxy: %w", err)
	}
	go func() {
		defer close(p.ended)
		p.err = cmd.Wait()
	}()
	select {
	case p.URL = <-p.said.url:
		return p, nil
	case <-p.ended:
		return nil, fmt.Errorf("start proxy: %w", p.Explain(p.err))
	}
}

// Explain adds to an error what the proxy said last.
func (p *Proxy) Explain(err error) error {
	if said := p.said.last(); said != "" {
		return fmt.Errorf("%w; the proxy said: %s", err, said)
	}
	return err
}

// Kill ends the proxy as a power cut would: no signal handler runs. It returns when the process is gone.
func (p *Proxy) Kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill proxy: %w", err)
	}
	<-p.ended
	return nil
}

// Stop asks the proxy to end, and wants it to do so in order.
func (p *Proxy) Stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		<-p.ended
		return fmt.Errorf("stop proxy: %w", p.Explain(err))
	}
	<-p.ended
	if p.err != nil {
		return fmt.Errorf("stop proxy: %w", p.Explain(p.err))
	}
	return nil
}
