//! The indices of a node: names, aliases, templates, settings, and what a restart keeps.
