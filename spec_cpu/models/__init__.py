"""The catalogue of models that have a name, and `fetch`, which gets their files here."""
