//! The log: lines to standard error, for people or, with `log_format = "json"`, for programs.
//!
//! `TERRACE_LOG` (a level, or filters by module) and `TERRACE_LOG_FORMAT` win over the settings: a service manager's unit can set them
//! without a change of the file. Each record is one line in both formats, whatever it quotes: `crate::terminal` sees to that.
//!
//! With JSON the error with which a node ends, and panics, are records of the log too: whoever reads it meets no other lines.
//!
//! Invariant: lines contain names and counts, never bytes of a message.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, bail};
use tracing_subscriber::EnvFilter;

use crate::config::{Config, LogFormat};
use crate::terminal;

/// Whether lines of this process are objects.
static IS_JSON: AtomicBool = AtomicBool::new(false);

/// Begins the log of this process, as settings and environment say.
///
/// # Errors
/// A level or a format that is none.
pub fn begin(config: &Config) -> anyhow::Result<()> {
    let directives = std::env::var("TERRACE_LOG").unwrap_or_else(|_| config.log().to_owned());
    let filter = EnvFilter::try_new(&directives).with_context(|| format!("`{directives}` is not a log level"))?;
    let format = match std::env::var("TERRACE_LOG_FORMAT").as_deref() {
        Err(_) => config.log_format(),
        Ok("text") => LogFormat::Text,
        Ok("json") => LogFormat::Json,
        Ok(other) => bail!("TERRACE_LOG_FORMAT is `{other}`: it is text or json"),
    };
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(terminal::log);
    match format {
        LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).with_target(false).init(),
        LogFormat::Json => {
            lines.with_ansi(false).json().with_current_span(false).with_span_list(false).init();
            IS_JSON.store(true, Ordering::Relaxed);
            std::panic::set_hook(Box::new(|panic| tracing::error!(%panic, "a thread panicked; report it")));
        }
    }
    Ok(())
}

/// The end of a node: with a log for programs its error is a record of it, and not a line of text.
pub fn ended(result: anyhow::Result<ExitCode>) -> anyhow::Result<ExitCode> {
    match result {
        Err(error) if IS_JSON.load(Ordering::Relaxed) => {
            tracing::error!(error = crate::explain(&error), "the node ended with an error");
            Ok(ExitCode::from(2))
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("nobody panicked").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_of_the_log_is_one_object_whatever_it_quotes() {
        let kept = Kept::default();
        let writer = kept.clone();
        let lines = tracing_subscriber::fmt().with_writer(move || terminal::Log::of(writer.clone()));
        let lines = lines.with_ansi(false).json().with_current_span(false).with_span_list(false).finish();
        let quoted = "a\n{\"b\":1}\u{1b}[2J \u{202e}\"";
        tracing::subscriber::with_default(lines, || {
            tracing::warn!(file = quoted, count = 7u64, refused = true, "it is\nquoted");
            tracing::info!(error = %std::io::Error::other(quoted), "another");
        });
        let text = String::from_utf8(kept.0.lock().expect("nobody panicked").clone()).expect("text");
        let objects: Vec<serde_json::Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
            .collect();
        assert_eq!(objects.len(), 2, "{text}");
        assert_eq!(objects[0]["fields"]["file"], quoted);
        assert_eq!(objects[0]["fields"]["message"], "it is\nquoted");
        assert_eq!((&objects[0]["fields"]["count"], &objects[0]["level"]), (&7.into(), &"WARN".into()));
        assert_eq!(objects[1]["fields"]["error"], quoted);
        assert!(objects.iter().all(|object| object["timestamp"].is_string()), "{text}");
    }
}
