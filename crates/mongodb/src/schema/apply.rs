//! Brings a deployment to what a policy asks for.

use mobimir_core::policy::ShardKey;

use super::{
    CollectionPlan,
    plan::{Change, Plan, SchemaError, Wanted, plan},
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
        let (database, command) = change.command(deployment.database().name());
        let made = deployment.client().database(&database).run_command(command).await;
        let of = plan.changes.len();
        made.map_err(|source| SchemaError::Refused { done, of, change: change.to_string(), source })?;
        progress(done + 1, change);
    }
    Ok(())
}

/// Makes what is missing of these collections, unsharded, and waits until it is there.
pub async fn apply(deployment: &Deployment, collections: &[CollectionPlan]) -> Result<(), SchemaError> {
    let unsharded =
        |collection: &CollectionPlan| Wanted { collection: collection.clone(), shard_key: ShardKey::none() };
    let wanted: Vec<Wanted> = collections.iter().map(unsharded).collect();
    carry_out(deployment, &plan(deployment, &wanted).await?, |_, _| {}).await
}
