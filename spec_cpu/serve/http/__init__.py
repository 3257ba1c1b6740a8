"""The engine over HTTP, as OpenAI's clients speak it: `app` has the routes, `server` runs them.

A request is checked (`schema`), rendered (`prompts`) and given to the engine (`answers`). Its
events are split into text, thoughts and calls (`choice`), and go out at once or as a stream.
"""
