//! The services of a node besides messages: their settings, start and stop.
//!
//! ```text
//!   [sql], [search], [volumes], [console], [backup] --> ServiceSettings --check, start--> Services --stop--> before the node closes its store
//! ```
//!
//! The console asks all others: it starts last and ends first. Rewriting with a new data key writes the files of search, and ends before it.
//! Search ends before the rest, so that nothing that it may ask is missing.

use std::path::Path;
use std::sync::Arc;

use interop::running::RunningProduction;
use node::profiling::Profiling;
use node::rewriting::Rewriting;

use crate::assemble::SearchShelves;
use crate::backups::{BackupTable, RunningBackups};
use crate::console::{ConsoleSettings, LentServices, RunningConsole};
use crate::metrics::MetricsSettings;
use crate::profiles;
use crate::rewriting;
use crate::search::{RunningSearch, SearchSettings};
use crate::sql;
use crate::volumes::{NodeVolumes, RunningVolumes, VolumeSettings};

/// The settings of the services; a service without settings does not run.
#[derive(Debug)]
pub struct ServiceSettings {
    /// `[sql]`
    pub sql: Option<sql::Settings>,
    /// `[search]`
    pub search: Option<SearchSettings>,
    /// `[volumes]`, with its defaults where the table is not there.
    pub volumes: VolumeSettings,
    /// `[metrics]`: it begins before all others, and ends after them.
    pub metrics: Option<MetricsSettings>,
    /// `[console]`
    pub console: Option<ConsoleSettings>,
    /// `[backup]`
    pub backup: Option<BackupTable>,
}

impl ServiceSettings {
    /// Refuses settings that cannot work, in a node with this data directory; `placed` are the keys of tiers that are set for index
    /// files.
    pub fn check(&self, data: &Path, placed: &[&str]) -> anyhow::Result<()> {
        self.sql.as_ref().map(|sql| sql.options(data)).transpose()?;
        self.search_options(data)?;
        self.volumes.options(data)?;
        self.metrics.as_ref().map(MetricsSettings::options).transpose()?;
        self.console_options()?;
        self.backup.as_ref().map(|backup| backup.settings(data)).transpose()?;
        for key in placed {
            let Some(search) = &self.search else {
                anyhow::bail!("placement.{key} has no effect: there is no [search]; leave it out, or add that table");
            };
            anyhow::ensure!(
                *key != "search" || !search.has_folder(),
                "search.folder and placement.search both set the place of the index files: leave one of them out"
            );
        }
        Ok(())
    }

    /// The options of search. Errors: a setting that cannot work, by its name.
    pub fn search_options(&self, data: &Path) -> anyhow::Result<Option<impl std::fmt::Debug + use<>>> {
        let Some(search) = &self.search else { return Ok(None) };
        Ok(Some((search.options()?, search.indices(data)?)))
    }

    /// What the settings of the console decide. Errors: a setting that cannot work, by its name.
    pub fn console_options(&self) -> anyhow::Result<Option<impl std::fmt::Debug + use<>>> {
        self.console.as_ref().map(ConsoleSettings::options).transpose()
    }

    /// Starts the services of a node. Errors: one of them cannot start; those before it are stopped again.
    pub async fn start(
        self,
        node: &Arc<RunningProduction>,
        placed: SearchShelves,
        volumes: &NodeVolumes,
    ) -> anyhow::Result<Services> {
        if let Some(sql) = &self.sql {
            sql.import(node).await?;
        }
        let sql = self.sql.map(|sql| sql.start(node)).transpose()?;
        let mut services = Services {
            sql,
            search: None,
            rewriting: None,
            profiling: None,
            volumes: None,
            console: None,
            backups: None,
        };
        let started = RunningVolumes::start_in(volumes, node).and_then(|volumes| {
            services.volumes = Some(volumes);
            let search = self.search.map(|search| search.start(node, placed));
            services.search = search.transpose()?;
            let lent = LentServices {
                sql: services.sql.as_ref().map(|sql| sql.lent()),
                indices: services.search.as_ref().and_then(|search| search.lent()),
            };
            services.rewriting = Some(rewriting::start(node, services.search.as_ref()));
            services.profiling = Some(profiles::start(node));
            services.console = self.console.map(|console| console.start(node, lent)).transpose()?;
            services.backups = self.backup.map(|backup| backup.start(node)).transpose()?;
            Ok(())
        });
        if let Err(error) = started {
            services.stop().await;
            return Err(error);
        }
        Ok(services)
    }
}

/// The services, until they are stopped.
#[derive(Debug)]
pub struct Services {
    sql: Option<sql::Running>,
    search: Option<RunningSearch>,
    rewriting: Option<Arc<Rewriting>>,
    profiling: Option<Arc<Profiling>>,
    volumes: Option<RunningVolumes>,
    console: Option<RunningConsole>,
    backups: Option<RunningBackups>,
}

impl Services {
    /// Where the figures of those that run come from.
    pub fn sources(&self) -> Vec<Box<node_metrics::Source>> {
        let sql = self.sql.as_ref().map(|sql| sql.source());
        let search = self.search.as_ref().map(|search| search.source());
        let volumes = self.volumes.as_ref().map(|volumes| crate::metrics::volumes(volumes.host()));
        [sql, search, volumes].into_iter().flatten().collect()
    }

    /// Ends all of them.
    pub async fn stop(self) {
        if let Some(backups) = self.backups {
            backups.stop().await;
        }
        if let Some(console) = self.console {
            console.stop().await;
        }
        if let Some(profiling) = self.profiling {
            // What was recorded becomes a profile. A panic of it has its line in the log.
            let _ = tokio::task::spawn_blocking(move || profiling.end()).await;
        }
        if let Some(rewriting) = self.rewriting {
            // It may be in the middle of a page. A panic of it has its line in the log.
            let _ = tokio::task::spawn_blocking(move || rewriting.end()).await;
        }
        if let Some(search) = self.search {
            search.stop().await;
        }
        if let Some(sql) = self.sql {
            sql.stop().await;
        }
        if let Some(volumes) = self.volumes {
            volumes.stop().await;
        }
    }
}
