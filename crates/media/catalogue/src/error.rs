//! The errors of media, models, placement and provisioning, named by what the caller can do about them.

use device::DeviceError;

/// Why the catalogue refused.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    /// A medium's file cannot be read.
    #[error("cannot read {file}: {source}")]
    Unreadable {
        /// The file or folder.
        file: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// A medium's file lacks a required value, or contains an unknown one. Correct the file.
    #[error("{file}: {what}")]
    Invalid {
        /// The file.
        file: String,
        /// The key, and what is wrong with it.
        what: String,
    },
    /// There is no medium with that name. Choose one of those listed.
    #[error("no medium is called {name}: there are {known}")]
    UnknownMedium {
        /// The requested name.
        name: String,
        /// All names, separated by commas.
        known: String,
    },
    /// A medium lacks a figure that its timing model needs. Add the figure, with its source, to a file of your own.
    #[error("{medium} cannot be modelled: its file has no {missing}; add it with its source to a file of your own")]
    Incomplete {
        /// The medium.
        medium: String,
        /// The missing figure.
        missing: String,
    },
    /// A model's target is shorter than the time of this host for the operation itself. Use a faster inner device, a
    /// slower medium, or accounted time.
    #[error(
        "{medium} cannot be modelled in real time on this host: {operation} should take {target_ns:.0} ns, and the host \
         alone takes {native_ns:.0} ns (p50); use accounted time, or a faster device below"
    )]
    HostTooSlow {
        /// The medium.
        medium: String,
        /// The operation, with its bytes.
        operation: String,
        /// The time of the model, nanoseconds.
        target_ns: f64,
        /// The time of the device below, nanoseconds, median.
        native_ns: f64,
    },
    /// The device below a model failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}
