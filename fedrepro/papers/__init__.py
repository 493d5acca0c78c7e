"""A paper as data: its spec, the cells of its tables, the runs that fill them."""
