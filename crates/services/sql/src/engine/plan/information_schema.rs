//! `information_schema` of a session: DataFusion's, over the names that the session sees, and the views of roles and rights
//! ([`super::rights_views`]).
//!
//! A view that cannot be planned (what it reads is gone, or its owner may not read it any more) has no columns here, and the
//! others are listed all the same. As in PostgreSQL, the query of a view shows to who has its owner's rights.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::information_schema::InformationSchemaProvider;
use datafusion::catalog::{
    CatalogProvider, CatalogProviderList, MemoryCatalogProviderList, SchemaProvider, Session, TableProvider,
};
use datafusion::error::{DataFusionError, Result as DfResult};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;

use super::rights_views::{self, RightsViews};
use crate::engine::parse::ast::DATABASE;

/// The name of the schema.
pub(crate) const INFORMATION_SCHEMA: &str = "information_schema";

/// The view of sequences.
const SEQUENCES: &str = "sequences";

/// Whether the query of a view, by schema and name, may be shown.
pub(crate) type DefinitionRight = dyn Fn(&str, &str) -> bool + Send + Sync;

/// Whether the query of a view is shown, by schema and name.
#[derive(Clone)]
pub(crate) struct ShowsDefinition(pub(crate) Arc<DefinitionRight>);

impl fmt::Debug for ShowsDefinition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ShowsDefinition")
    }
}

/// The schema, over the names of a catalog.
pub(crate) fn schema(
    names: Arc<dyn CatalogProvider>,
    shows: ShowsDefinition,
    rights: RightsViews,
) -> Arc<dyn SchemaProvider> {
    let list = MemoryCatalogProviderList::new();
    list.register_catalog(DATABASE.into(), Arc::new(DescribedCatalog { names, shows }));
    let described = InformationSchemaProvider::new(Arc::new(list));
    Arc::new(DescribingSchema { described, rights })
}

/// The views of objects, and those of rights.
#[derive(Debug)]
struct DescribingSchema {
    described: InformationSchemaProvider,
    rights: RightsViews,
}

#[async_trait]
impl SchemaProvider for DescribingSchema {
    fn table_names(&self) -> Vec<String> {
        let mut all = self.described.table_names();
        all.extend(rights_views::names().chain([SEQUENCES]).map(str::to_owned));
        all
    }

    async fn table(&self, name: &str) -> DfResult<Option<Arc<dyn TableProvider>>> {
        if name == SEQUENCES {
            return Ok(Some(Arc::new(self.rights.sequences()?)));
        }
        match self.rights.table(name)? {
            Some(made) => Ok(Some(Arc::new(made))),
            None => self.described.table(name).await,
        }
    }

    fn table_exist(&self, name: &str) -> bool {
        name == SEQUENCES || rights_views::names().any(|known| known == name) || self.described.table_exist(name)
    }
}

#[derive(Debug)]
struct DescribedCatalog {
    names: Arc<dyn CatalogProvider>,
    shows: ShowsDefinition,
}

impl CatalogProvider for DescribedCatalog {
    fn schema_names(&self) -> Vec<String> {
        self.names.schema_names()
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        let names = self.names.schema(name)?;
        Some(Arc::new(DescribedSchema { names, schema: name.to_owned(), shows: self.shows.clone() }))
    }
}

#[derive(Debug)]
struct DescribedSchema {
    names: Arc<dyn SchemaProvider>,
    schema: String,
    shows: ShowsDefinition,
}

#[async_trait]
impl SchemaProvider for DescribedSchema {
    fn table_names(&self) -> Vec<String> {
        self.names.table_names()
    }

    async fn table(&self, name: &str) -> DfResult<Option<Arc<dyn TableProvider>>> {
        // What cannot be planned is left out, and does not spoil the list.
        let Ok(Some(table)) = self.names.table(name).await else { return Ok(None) };
        let shows = (self.shows.0)(&self.schema, name);
        let definition = table.get_table_definition().filter(|_| shows).map(str::to_owned);
        Ok(Some(Arc::new(DescribedTable { columns: table.schema(), kind: table.table_type(), definition })))
    }

    async fn table_type(&self, name: &str) -> DfResult<Option<TableType>> {
        self.names.table_type(name).await
    }

    fn table_exist(&self, name: &str) -> bool {
        self.names.table_exist(name)
    }
}

/// A table, as it is listed. It has no rows.
#[derive(Debug)]
struct DescribedTable {
    columns: SchemaRef,
    kind: TableType,
    definition: Option<String>,
}

#[async_trait]
impl TableProvider for DescribedTable {
    fn schema(&self) -> SchemaRef {
        self.columns.clone()
    }

    fn table_type(&self) -> TableType {
        self.kind
    }

    fn get_table_definition(&self) -> Option<&str> {
        self.definition.as_deref()
    }

    async fn scan(
        &self,
        _: &dyn Session,
        _: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        Err(DataFusionError::Internal("a description has no rows".into()))
    }
}
