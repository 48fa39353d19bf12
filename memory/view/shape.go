package view

// Shape is how a view is sent. Servers differ in what they accept: docs/strict-servers.md. The zero Shape is the view as it is.
type Shape struct {
	Form    Form
	NoTools bool // without the tools of layers
	// Portable: stored items are in a form that any provider accepts.
	Portable bool
	// NoCalls: and without calls and their results, if the request offers no tools.
	NoCalls bool
	// NoMedia: words stand in the place of the pictures, files and sounds that the model has answered, for a model that takes
	// none, where an address leads nowhere any more, and where they are too large together. The client's own are told as well.
	NoMedia bool
	// Mend changes calls, the client's own as well.
	Mend Mend
}

// And returns the shape with the changes of both.
func (s Shape) And(o Shape) Shape {
	return Shape{
		Form: max(s.Form, o.Form), NoTools: s.NoTools || o.NoTools, Portable: s.Portable || o.Portable, NoCalls: s.NoCalls || o.NoCalls,
		NoMedia: s.NoMedia || o.NoMedia,
		Mend:    s.Mend | o.Mend,
	}
}
