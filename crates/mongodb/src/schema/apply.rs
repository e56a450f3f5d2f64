//! Brings a deployment to what a policy asks for.

use std::time::Duration;

use mongodb::{
    IndexModel,
    bson::{Document, doc},
    options::IndexOptions,
};

use super::{
    CollectionPlan, Index,
    plan::{Change, Plan, SchemaError, Wanted, key_document, plan},
};
use crate::deployment::Deployment;

/// Makes the changes one after the other; `progress` hears of each when it is done.
pub async fn carry_out(
    deployment: &Deployment,
    plan: &Plan,
    mut progress: impl FnMut(usize, &Change),
) -> Result<(), SchemaError> {
    if !plan.conflicts.is_empty() {
        return Err(SchemaError::Conflicts(plan.conflicts.iter().map(ToString::to_string).collect()));
    }
    for (done, change) in plan.changes.iter().enumerate() {
        let made = match change {
            Change::CreateIndex { collection, index } => deployment
                .database()
                .collection::<Document>(collection)
                .create_index(model(index))
                .await
                .map(|_| ()),
            Change::ShardCollection { collection, key } => {
                let full = format!("{}.{collection}", deployment.database().name());
                let command = doc! { "shardCollection": full, "key": key_document(key) };
                deployment.client().database("admin").run_command(command).await.map(|_| ())
            }
        };
        let of = plan.changes.len();
        made.map_err(|source| SchemaError::Refused { done, of, change: change.to_string(), source })?;
        progress(done + 1, change);
    }
    Ok(())
}

/// Makes what is missing of these collections, unsharded, and waits until it is there.
pub async fn apply(deployment: &Deployment, collections: &[CollectionPlan]) -> Result<(), SchemaError> {
    let unsharded = |collection: &CollectionPlan| Wanted {
        collection: collection.clone(),
        shard_key: mobimir_core::policy::ShardKey::none(),
    };
    let wanted: Vec<Wanted> = collections.iter().map(unsharded).collect();
    carry_out(deployment, &plan(deployment, &wanted).await?, |_, _| {}).await
}

fn model(index: &Index) -> IndexModel {
    let options = IndexOptions::builder()
        .name(index.name.to_owned())
        .unique(index.unique.then_some(true))
        .expire_after(index.expires.then_some(Duration::ZERO))
        .partial_filter_expression(index.only.clone())
        .build();
    IndexModel::builder().keys(index.keys.clone()).options(options).build()
}
