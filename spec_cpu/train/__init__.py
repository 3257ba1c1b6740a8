"""Everything that makes a head: text from the target, training, export. All that imports torch."""
