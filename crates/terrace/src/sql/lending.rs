//! SQL for the console: the reader of the SQL service, as the console knows it.

use async_trait::async_trait;
use node::identity::Caller;
use sql::wire::{ReadBounds, ReadRefusal, SqlReader};
use web_console::AdminError;
use web_console::lending::{SqlQuestion, SqlSource, SqlTable};

/// See the module's text.
#[derive(Debug)]
pub struct LentSql(pub SqlReader);

/// What an error of SQL means to who asked, with all that it says.
fn refused(error: ReadRefusal) -> AdminError {
    let ReadRefusal { code, message, detail, hint, position } = error;
    let mut text = format!("{message} (SQLSTATE {code})");
    text.extend(position.map(|position| format!("\nat character {position}")));
    text.extend(detail.map(|detail| format!("\n{detail}")));
    text.extend(hint.map(|hint| format!("\n{hint}")));
    match code {
        "42501" | "28000" => AdminError::Denied(text),
        "53000" | "53100" | "53200" | "53300" | "57P01" | "57P03" | "58000" | "XX000" => AdminError::Unavailable(text),
        _ => AdminError::Refused(text),
    }
}

#[async_trait]
impl SqlSource for LentSql {
    async fn read(&self, caller: &Caller, question: &SqlQuestion) -> Result<SqlTable, AdminError> {
        let bounds = ReadBounds { rows: question.rows_max, bytes: question.bytes_max, time: question.time_max };
        let found = self.0.read(caller, &question.text, bounds).await.map_err(refused)?;
        Ok(SqlTable { columns: found.columns, rows: found.rows, is_whole: found.is_whole, tag: found.tag })
    }
}
