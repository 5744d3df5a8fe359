//! `information_schema` of a session: the views of objects ([`super::object_views`]), of roles and rights ([`super::rights_views`]), of
//! sequences, and what DataFusion lists of its functions and settings.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::information_schema::InformationSchemaProvider;
use datafusion::catalog::{MemoryCatalogProviderList, SchemaProvider, TableProvider};
use datafusion::error::Result as DfResult;

use super::object_views::{self, ObjectViews};
use super::rights_views::{self, RightsViews};

/// The name of the schema.
pub(crate) const INFORMATION_SCHEMA: &str = "information_schema";

/// The view of sequences.
const SEQUENCES: &str = "sequences";

/// What DataFusion lists; its views of objects are not those of PostgreSQL.
const LENT: [&str; 3] = ["df_settings", "parameters", "routines"];

/// The schema, for what a statement sees.
pub(crate) fn schema(rights: RightsViews) -> Arc<dyn SchemaProvider> {
    let lent = InformationSchemaProvider::new(Arc::new(MemoryCatalogProviderList::new()));
    let system: Vec<String> = names().map(str::to_owned).collect();
    let objects = ObjectViews::new(rights.clone(), INFORMATION_SCHEMA, system);
    Arc::new(DescribingSchema { lent, rights, objects })
}

/// The names of all views.
fn names() -> impl Iterator<Item = &'static str> {
    object_views::names().chain(rights_views::names()).chain([SEQUENCES]).chain(LENT)
}

/// All views.
#[derive(Debug)]
struct DescribingSchema {
    lent: InformationSchemaProvider,
    rights: RightsViews,
    objects: ObjectViews,
}

#[async_trait]
impl SchemaProvider for DescribingSchema {
    fn table_names(&self) -> Vec<String> {
        names().map(str::to_owned).collect()
    }

    async fn table(&self, name: &str) -> DfResult<Option<Arc<dyn TableProvider>>> {
        if name == SEQUENCES {
            return Ok(Some(Arc::new(self.rights.sequences()?)));
        }
        if let Some(made) = self.objects.table(name)? {
            return Ok(Some(Arc::new(made)));
        }
        match self.rights.table(name)? {
            Some(made) => Ok(Some(Arc::new(made))),
            None if LENT.contains(&name) => self.lent.table(name).await,
            None => Ok(None),
        }
    }

    fn table_exist(&self, name: &str) -> bool {
        names().any(|known| known == name)
    }
}
