package complete

// Content is what FuzzContent feeds.
var Content = content
