package address_test

import (
	"net/url"
	"testing"

	"remora/address"
)

func TestCheckURL(t *testing.T) {
	for raw, want := range map[string]bool{
		"http://h": true, "http://h:": true, "http://a-b.c_d:65535/x": true, "http://10.0.0.1:80": true, "http://[::1]:80": true, "http://[fe80::1%25eth0]": true, "http://ä.example": true,
		"http://h:0": false, "http://h:65536": false, "http://300.1.1.1": false, "http://1.1.1": false, "http://1": false, "http://[::z]": false,
	} {
		u, err := url.Parse(raw)
		if err != nil {
			if want {
				t.Errorf("%s: %v", raw, err)
			}
			continue
		}
		if err := address.CheckURL(u); (err == nil) != want {
			t.Errorf("%s: %v", raw, err)
		}
	}
}
