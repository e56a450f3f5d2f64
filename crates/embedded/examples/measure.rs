#![allow(clippy::all, clippy::print_stdout, clippy::unwrap_used, reason = "scratch")]
#[path = "../tests/common/mod.rs"]
mod common;
use std::time::Instant;
use common::*;
use mobimir_core::{ports::*, product::*, money::Money, zone::Zone, id::*};
use mobimir_embedded::*;
use uuid::Uuid;
fn rss() -> String { std::fs::read_to_string("/proc/self/status").unwrap().lines().filter(|l| l.starts_with("VmRSS")||l.starts_with("VmHWM")).collect::<Vec<_>>().join(" ") }
fn cpu() -> f64 { let s = std::fs::read_to_string("/proc/self/stat").unwrap(); let f: Vec<&str> = s.rsplit(')').next().unwrap().split_whitespace().collect(); (f[11].parse::<f64>().unwrap()+f[12].parse::<f64>().unwrap())*10_000.0 }
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let dir = std::path::PathBuf::from(&args[2]);
    let rt = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let t = Instant::now();
    let store = EmbeddedStore::open(&dir, &Options::default()).unwrap();
    println!("open {:?} {}", t.elapsed(), rss());
    rt.block_on(async {
        match args[1].as_str() {
            "fill" => {
                let t = Instant::now();
                for c in 0..20u128 { ProductStore::insert(&store, (c*500..c*500+500).map(|n| { let mut p = product(n, 5); p.id = product_id(n.wrapping_mul(0x9E3779B97F4A7C15F39CC0605CEDC835)); p.name = format!("Телефон {} модель {}", ["Самсунг","Сяоми","Хонор","Эппл","Нокиа"][n as usize%5], n); p.category=format!("Категория {}", n%20); p.price=Money::from_kopecks((n as i128*7919)%100_000_00); p }).collect()).await.unwrap(); }
                println!("10k products {:?} {}", t.elapsed(), rss());
                let t = Instant::now();
                for c in 0..200u128 { OrderStore::insert(&store, (c*500..c*500+500).map(|n| order(n, n%1000)).collect()).await.unwrap(); }
                println!("100k orders {:?} {} disk {}", t.elapsed(), rss(), store.stats().disk_bytes);
            }
            "idle" => { tokio::time::sleep(std::time::Duration::from_secs(3)).await; println!("idle {}", rss()); }
            "read" => {
                for (name, q) in queries() {
                    let page = store.list(q.clone()).await.unwrap();
                    let t = Instant::now();
                    for _ in 0..500 { store.list(q.clone()).await.unwrap(); }
                    println!("{name}: {:?} per call, {} items", t.elapsed()/500, page.items.len());
                }
                let t = Instant::now(); for _ in 0..500 { store.categories().await.unwrap(); } println!("categories {:?}", t.elapsed()/500);
                let ids: Vec<_> = (0..10_000u128).map(|n| product_id(n.wrapping_mul(0x9E3779B97F4A7C15F39CC0605CEDC835))).collect();
                let t = Instant::now(); for id in &ids { ProductStore::get(&store, *id).await.unwrap().unwrap(); } println!("get cold {:?}", t.elapsed()/10_000);
                let t = Instant::now(); for _ in 0..20 { for id in &ids { ProductStore::get(&store, *id).await.unwrap().unwrap(); } } println!("get warm {:?}", t.elapsed()/200_000);
                let t = Instant::now(); for n in 0..2000u128 { OrderStore::get(&store, order(n, 0).id).await.unwrap().unwrap(); } println!("order get {:?}", t.elapsed()/2000);
                let t = Instant::now(); for n in 0..500u128 { OrderStore::by_user(&store, UserId(Uuid::from_u128(n)), Period::default(), None, 20).await.unwrap(); } println!("by_user 20 {:?}", t.elapsed()/500);
                println!("{}", rss());
            }
            "carts" => {
                for round in 0..3u128 {
                    for mode in if std::env::var("PORT").is_ok() { vec!["port"] } else { vec!["raw", "port"] } {
                        let before = store.engine().stats().commits.load(std::sync::atomic::Ordering::Relaxed);
                        let c0 = cpu(); let t = Instant::now();
                        let mut set = tokio::task::JoinSet::new();
                        for w in 0..64u128 { let store = store.clone(); set.spawn(async move {
                            for n in 0..500u128 {
                                let o = owner(round*1000 + w);
                                if mode == "raw" { let mut k = vec![250u8]; k.extend_from_slice(&(round*1_000_000+w*1000+n).to_be_bytes()); k.extend([0;17]);
                                    store.engine().put(Space::Carts, k, vec![7u8; 75]).await.unwrap(); }
                                else { store.append(o, vec![add(o, (round*1_000_000+w*1000+n).wrapping_mul(0x9E3779B97F4A7C15F39CC0605CEDC835), 1)], NOON.plus_s(100), NOON.plus_ms(n as i64)).await.unwrap(); }
                            } }); }
                        set.join_all().await;
                        let c = store.engine().stats().commits.load(std::sync::atomic::Ordering::Relaxed) - before;
                        println!("cpu {:.1} us/job", (cpu()-c0)/32000.0); println!("{mode}: {:.0}/s, mean group {:.1}", 32_000.0/t.elapsed().as_secs_f64(), 32000.0/c as f64);
                    }
                }
                println!("{}", rss());
                let t = Instant::now(); for n in 0..10_000u128 { CartStore::read(&store, owner(n%64), NOON).await.unwrap().unwrap(); } println!("cart read {:?}", t.elapsed()/10_000);
            }
            _ => panic!(),
        }
    });
    let t = Instant::now(); drop(store); println!("drop {:?}", t.elapsed());
}
fn queries() -> Vec<(&'static str, ProductQuery)> {
    let all = ProductQuery::all(ProductSort::PriceAscending, 20);
    let terms = |t: &str| mobimir_core::search::terms(t);
    vec![
        ("all price", all.clone()), ("all name", ProductQuery { sort: ProductSort::Name, ..all.clone() }), ("all -price", ProductQuery { sort: ProductSort::PriceDescending, ..all.clone() }),
        ("category", ProductQuery { category: Some("Категория 3".into()), ..all.clone() }),
        ("category+zone", ProductQuery { category: Some("Категория 3".into()), zone: Some(Zone::parse("MSK").unwrap()), ..all.clone() }),
        ("term самсунг + zone", ProductQuery { terms: terms("самсунг"), zone: Some(Zone::parse("MSK").unwrap()), ..all.clone() }),
        ("terms самсунг 77 ", ProductQuery { terms: terms("самсунг 75"), ..all.clone() }),
        ("term+category disjoint", ProductQuery { terms: terms("самсунг"), category: Some("Категория 3".into()), ..all.clone() }),
        ("term+category+zone -price", ProductQuery { terms: terms("сяоми"), category: Some("Категория 1".into()), zone: Some(Zone::parse("MSK").unwrap()), sort: ProductSort::PriceDescending, ..all.clone() }),
        ("name + narrow price", ProductQuery { price_min: Some(Money::from_kopecks(100_000)), price_max: Some(Money::from_kopecks(101_000)), sort: ProductSort::Name, ..all.clone() }),
        ("price range", ProductQuery { price_min: Some(Money::from_kopecks(100_000)), ..all }),
    ]
}
