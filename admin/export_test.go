package admin

import "net/http"

// Handler returns what the server serves.
func (s *Server) Handler() http.Handler { return s.http.Handler }
