"""Child processes of the service, such as the stager and the search workers. They end with the service.

`child` is the service's side. `bootstrap` is the side of the process, which imports nothing else of this package.
"""
