"""One folder for each cloud's API, all of the same shape.

`wire` holds the documents as typed structs and is the only place that spells the cloud's field names; `translate`
knows both worlds; `sign` checks who asks; `errors` turns ours into its codes; `routes` serves it. Catalogues are data
files.
"""
