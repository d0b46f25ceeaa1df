"""What users hold: streams, joins, the writer, running queries; each checks what it is given."""
