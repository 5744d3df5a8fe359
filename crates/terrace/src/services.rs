//! The services of a node besides messages: their settings, start and stop.
//!
//! ```text
//!   [sql], [search] --> ServiceSettings --check, start--> Services --stop--> before the node closes its store
//! ```
//!
//! Search has the users of SQL. It starts last and ends first, so that nothing that it may ask of others is missing.

use std::path::Path;

use interop::running::RunningProduction;

use crate::listeners::Passwords;
use crate::search::{RunningSearch, SearchSettings};
use crate::sql;

/// The settings of the services; a service without settings does not run.
#[derive(Debug)]
pub struct ServiceSettings {
    /// `[sql]`
    pub sql: Option<sql::Settings>,
    /// `[search]`
    pub search: Option<SearchSettings>,
}

impl ServiceSettings {
    /// Refuses settings that cannot work, in a node with this data directory.
    pub fn check(&self, data: &Path) -> anyhow::Result<()> {
        self.sql.as_ref().map(|sql| sql.options(data)).transpose()?;
        self.search_options(data)?;
        Ok(())
    }

    fn passwords(&self) -> anyhow::Result<Option<Passwords>> {
        Ok(self.sql.as_ref().map(sql::Settings::passwords).transpose()?.flatten())
    }

    /// The options of search. Errors: a setting that cannot work, by its name.
    pub fn search_options(&self, data: &Path) -> anyhow::Result<Option<impl std::fmt::Debug + use<>>> {
        let Some(search) = &self.search else { return Ok(None) };
        Ok(Some((search.options(self.passwords()?)?, search.indices(data)?)))
    }

    /// Starts the services over the node's store. Errors: one of them cannot start; those before it are stopped again.
    pub async fn start(self, node: &RunningProduction) -> anyhow::Result<Services> {
        let passwords = self.passwords()?;
        let mut services = Services { sql: self.sql.map(|sql| sql.start(node)).transpose()?, search: None };
        match self.search.map(|search| search.start(node, passwords)).transpose() {
            Ok(search) => services.search = search,
            Err(error) => {
                services.stop().await;
                return Err(error);
            }
        }
        Ok(services)
    }
}

/// The services, until they are stopped.
#[derive(Debug)]
pub struct Services {
    sql: Option<sql::Running>,
    search: Option<RunningSearch>,
}

impl Services {
    /// Ends all of them.
    pub async fn stop(self) {
        if let Some(search) = self.search {
            search.stop().await;
        }
        if let Some(sql) = self.sql {
            sql.stop().await;
        }
    }
}
