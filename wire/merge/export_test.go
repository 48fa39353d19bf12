package merge

// What tests of this package's insides need. They stand outside of it, as the dialects that they try import it.

func (o Options) Judges() bool { return o.HoldCalls || o.HoldAll }

func (s *Merger) SetLimit(bytes int) { s.limit = bytes }
