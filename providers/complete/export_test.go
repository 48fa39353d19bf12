package complete

// Content is for FuzzContent.
var Content = content
