//! Bodies of the fuzz targets: what must hold for any input. A target decodes bytes and calls one of these.
