"""The operations of all or some ranks as JAX primitives: `primitive` has what they share, `groups`
and `reduction` what some do; each of the others holds those of one kind."""
