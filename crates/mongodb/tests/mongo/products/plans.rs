//! How the server answers what the shop asks: the servers' own record of every query says by which index.

use mobimir_core::{
    policy::Entity,
    ports::ProductStore,
    product::{ProductQuery, ProductSort},
    search,
};
use mobimir_mongodb::{Deployment, MongoProducts};
use mongodb::bson::{Document, doc};

use super::{msk, named, now, sale};
use crate::support::{block_on, fresh, shared};

const PRODUCTS: usize = 600;
const LIMIT: usize = 20;

#[test]
fn every_question_to_the_catalogue_is_answered_by_an_index() {
    let shared = shared();
    block_on(async {
        let deployment = fresh(shared.set, &[Entity::Products]).await;
        let products = MongoProducts::new(deployment.clone());
        fill(&products).await;
        profile(&deployment).await;
        for sort in [ProductSort::PriceAscending, ProductSort::PriceDescending, ProductSort::Name] {
            for query in questions(sort) {
                for page in 0..2 {
                    let mut asked = query.clone();
                    if page == 1 {
                        asked.after = products.list(query.clone()).await.unwrap().next;
                    }
                    forget(&deployment).await;
                    products.list(asked.clone()).await.unwrap();
                    let seen = recorded(&deployment, "find").await;
                    assert_eq!(seen.len(), 1, "{asked:?}");
                    let plan = seen[0].get_str("planSummary").unwrap();
                    assert!(plan.contains("IXSCAN") && !plan.contains("COLLSCAN"), "{asked:?}: {plan}");
                    assert!(!seen[0].get_bool("hasSortStage").unwrap_or(false), "{asked:?}: {seen:?}");
                    // Where nothing but the order and one bound is asked for, a page costs its length.
                    if asked.terms.len() < 2 && asked.zone.is_none() && page == 0 && is_direct(&asked) {
                        let examined = number(&seen[0], "docsExamined");
                        assert!(examined <= LIMIT as i64 + 1, "{asked:?} looked at {examined}: {plan}");
                    }
                }
            }
        }
    });
}

#[test]
fn categories_holds_and_due_checkouts_cost_what_they_find() {
    let shared = shared();
    block_on(async {
        let deployment = fresh(shared.set, &[Entity::Products]).await;
        let products = MongoProducts::new(deployment.clone());
        fill(&products).await;
        let held = named("Придержанный", "Телефоны", 1, 5);
        products.insert(vec![held.clone()]).await.unwrap();
        products.hold(held.id, sale(1), now()).await.unwrap();
        profile(&deployment).await;

        let categories = products.categories().await.unwrap();
        assert_eq!(categories, ["Ноутбуки", "Планшеты", "Телефоны"]);
        let seen = recorded(&deployment, "aggregate").await;
        assert_eq!(
            seen[0].get_str("planSummary").unwrap().split(' ').next(),
            Some("DISTINCT_SCAN"),
            "{seen:?}"
        );
        assert!(number(&seen[0], "keysExamined") <= 2 * 3 + 1, "{seen:?}");

        forget(&deployment).await;
        let found = products.with_holds(now().plus_ms(1), None, 10).await.unwrap();
        assert_eq!(found.iter().map(|product| product.id).collect::<Vec<_>>(), [held.id]);
        products.due_checkouts(now(), 10).await.unwrap();
        let plans = |seen: &[Document]| -> Vec<String> {
            seen.iter().map(|it| it.get_str("planSummary").unwrap().to_owned()).collect()
        };
        let seen = recorded(&deployment, "aggregate").await;
        let holds = ["IXSCAN { _id: 1, oldest_hold: 1 }", "IXSCAN { oldest_hold: 1, product: 1 }"];
        assert_eq!(plans(&seen), holds);
        assert!(number(&seen[0], "keysExamined") <= 2, "{seen:?}");
        let seen = recorded(&deployment, "find").await;
        assert_eq!(plans(&seen), ["IXSCAN { _id: 1 }", "IXSCAN { due_at: 1 }"]);
    });
}

/// Whether the index bounds say all that is asked.
fn is_direct(query: &ProductQuery) -> bool {
    let has_price = query.price_min.is_some() || query.price_max.is_some();
    let terms_and_category = !query.terms.is_empty() && query.category.is_some();
    !terms_and_category && !(has_price && query.sort == ProductSort::Name)
}

/// As the API asks them: each condition alone, and together.
fn questions(sort: ProductSort) -> Vec<ProductQuery> {
    let all = ProductQuery::all(sort, LIMIT);
    let category = Some("Телефоны".to_owned());
    let price = mobimir_core::money::Money::from_kopecks;
    let terms = search::terms("чёрный");
    vec![
        all.clone(),
        ProductQuery { category: category.clone(), ..all.clone() },
        ProductQuery { price_min: Some(price(2_000)), price_max: Some(price(50_000)), ..all.clone() },
        ProductQuery { category: category.clone(), price_min: Some(price(2_000)), ..all.clone() },
        ProductQuery { terms: terms.clone(), ..all.clone() },
        ProductQuery { terms: search::terms("чёрные телефоны"), ..all.clone() },
        ProductQuery { zone: Some(msk()), ..all.clone() },
        ProductQuery {
            category,
            terms,
            price_min: Some(price(100)),
            price_max: Some(price(60_000)),
            zone: Some(msk()),
            ..all
        },
    ]
}

async fn fill(products: &MongoProducts) {
    let kinds = [("Телефон", "Телефоны"), ("Ноутбук", "Ноутбуки"), ("Планшет", "Планшеты")];
    let colours = ["чёрный", "белый"];
    let products_of = (0..PRODUCTS).map(|n| {
        let (name, category) = kinds[n % 3];
        let name = format!("{name} {} {n}", colours[n / 3 % 2]);
        named(&name, category, (n * 7919 % 600) as i128 * 100, (n % 4) as u64)
    });
    products.insert(products_of.collect()).await.unwrap();
}

async fn profile(deployment: &Deployment) {
    deployment.database().run_command(doc! { "profile": 2 }).await.unwrap();
}

async fn forget(deployment: &Deployment) {
    let database = deployment.database();
    database.run_command(doc! { "profile": 0 }).await.unwrap();
    database.collection::<Document>("system.profile").drop().await.unwrap();
    profile(deployment).await;
}

/// What was asked since the last look, oldest first.
async fn recorded(deployment: &Deployment, command: &str) -> Vec<Document> {
    use futures_util::TryStreamExt;
    let filter = doc! { format!("command.{command}"): { "$exists": true, "$ne": "system.profile" } };
    let profile = deployment.database().collection::<Document>("system.profile");
    let local = mongodb::options::ReadConcern::local();
    profile
        .find(filter)
        .read_concern(local)
        .sort(doc! { "ts": 1 })
        .await
        .unwrap()
        .try_collect()
        .await
        .unwrap()
}

fn number(record: &Document, field: &str) -> i64 {
    record.get_i32(field).map(i64::from).or_else(|_| record.get_i64(field)).unwrap()
}
