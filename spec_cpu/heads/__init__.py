"""The file formats of heads that draft, as the library reads and writes them, without torch."""
