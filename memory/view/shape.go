package view

// Shape is the form in which a view is sent. Servers differ in what they accept: docs/strict-servers.md. The zero Shape changes
// nothing.
type Shape struct {
	Form    Form
	NoTools bool // without the tools of layers
	// Portable: stored items are in a form that any provider accepts.
	Portable bool
	// Own: and what models have said in items that the client resends, if upstream has refused those.
	Own bool
	// NoCalls: and without calls and their results, if the request offers no tools.
	NoCalls bool
	// NoMedia: text replaces images, files and audio that the model has answered, if the model takes none, a URL has expired,
	// or they are too large together. This includes the client's own.
	NoMedia bool
	// Mend changes calls, the client's own as well.
	Mend Mend
}

// And returns the shape with the changes of both.
func (s Shape) And(o Shape) Shape {
	return Shape{
		Form: max(s.Form, o.Form), NoTools: s.NoTools || o.NoTools, Portable: s.Portable || o.Portable, NoCalls: s.NoCalls || o.NoCalls,
		Own: s.Own || o.Own, NoMedia: s.NoMedia || o.NoMedia,
		Mend: s.Mend | o.Mend,
	}
}
