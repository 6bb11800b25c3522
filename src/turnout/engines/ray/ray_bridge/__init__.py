"""The bridge: a process with the cluster's own Ray, which does what the service asks for.

It is run by the interpreter of `[clusters.X] python`, and its class `Replica` by the workers of the cluster. So this
package imports Ray and the standard library only.
"""
