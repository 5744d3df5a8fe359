//! Acknowledgements: which one a message asks for, building it, reading it.
