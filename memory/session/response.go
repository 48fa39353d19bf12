package session

import "remora/cache"

// Names of the values of a response's group.
const (
	sessionName = "session" // the session in which it was given
	lastName    = "last"    // upstream's id of the answer that it ended with
	atName      = "at"      // the provider that gave it
)

// ResponseGroup returns the store's group that names the session of a response.
func ResponseGroup(tenant, responseID string) cache.Group {
	return cache.Group{Owner: tenant, Name: "r:" + responseID}
}

// Response says where an answer was given, by the id that its client has.
type Response struct {
	// Session is where it was given, "" where that is not known.
	Session string
	// Last is upstream's id of the answer that it ended with, where it was made of several; else "".
	Last string
	// Provider is the name of the provider that gave it and may keep it, "" where that is not known.
	Provider string
	// Later is the id of its turn, while upstream makes it in the background; else "".
	Later string
}
