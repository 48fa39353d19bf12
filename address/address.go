// Package address checks addresses of the configuration, so that one that nothing can be dialled at is refused at the start.
package address

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// IsHost reports whether a host is a name or an IP address; "" counts as a name. A host of digits and dots must be an IP address.
func IsHost(host string) bool {
	if strings.Trim(host, "0123456789.") == "" && host != "" || strings.Contains(host, ":") {
		_, err := netip.ParseAddr(host)
		return err == nil
	}
	return !strings.ContainsAny(host, " /\\@?#")
}

// IsPort reports whether a port is a number from 1 to 65535.
func IsPort(port string) bool {
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0
}

// CheckURL checks the host and the port of a URL, which need not have a port. Of the URL, its error quotes the host alone.
func CheckURL(u *url.URL) error {
	if !IsHost(u.Hostname()) {
		return fmt.Errorf("must have a name or an IP address, %s is neither", u.Hostname())
	}
	if u.Port() != "" && !IsPort(u.Port()) {
		return errors.New("must have a port from 1 to 65535, or none")
	}
	return nil
}
