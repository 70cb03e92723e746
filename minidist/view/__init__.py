"""Pictures of what was measured or counted, as SVG. `charts` has lines and bars."""
