//! Brings a deployment to what the collections say.

use mongodb::{IndexModel, options::IndexOptions};
use std::time::Duration;

use super::CollectionPlan;
use crate::deployment::Deployment;

/// Makes what is missing, and waits until it is there.
pub async fn apply(deployment: &Deployment, collections: &[CollectionPlan]) -> mongodb::error::Result<()> {
    for plan in collections {
        let indexes = plan.indexes.iter().map(|index| {
            let options = IndexOptions::builder()
                .name(index.name.to_owned())
                .unique(index.unique.then_some(true))
                .expire_after(index.expires.then_some(Duration::ZERO))
                .partial_filter_expression(index.only.clone())
                .build();
            IndexModel::builder().keys(index.keys.clone()).options(options).build()
        });
        let collection = deployment.database().collection::<mongodb::bson::Document>(plan.name);
        let indexes: Vec<IndexModel> = indexes.collect();
        if !indexes.is_empty() {
            collection.create_indexes(indexes).await?;
        }
    }
    Ok(())
}
