package admin

import "net/http"

// Handler returns the server's handler.
func (s *Server) Handler() http.Handler { return s.http.Handler }
