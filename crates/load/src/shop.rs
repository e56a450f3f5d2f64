//! The shop that is asked: what there is to buy, who buys, and what is in stock, before and after a run.

use std::{
    collections::BTreeMap,
    fmt, io,
    net::{Ipv6Addr, SocketAddr, ToSocketAddrs},
    str::FromStr,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use mobimir_core::random::Random;
use serde::Deserialize;

use crate::{
    asking::{Heard, ask_all},
    crowd::{Shopper, code, shown},
    goods::{Goods, Listed},
    profile::Profile,
    record::Limits,
    request::{Parts, Request, encoded},
    wire::{Answer, Outcome, Wire},
};

/// How long to try before the shop is said not to be able to.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(500);
/// As many as a page of a list may have.
const PAGE_ITEMS: &str = "limit=100";
/// A shop that never comes to rest is not waited for longer.
const RESTS_MAX: usize = 10;
/// What an idle shop uses at most: it looks after itself every second.
const IDLE_CORES_MAX: f64 = 0.2;

#[derive(Debug, thiserror::Error)]
pub enum ShopError {
    #[error("expected an address like http://127.0.0.1:8080, got {0:?}")]
    BadAddress(String),
    #[error("no shop answers at {address}: {reason}")]
    NoConnection { address: String, reason: io::Error },
    #[error("the connection to the shop failed: {0}")]
    Io(#[from] io::Error),
    #[error("the shop has no products: start it with `mobimir demo`, or import some")]
    NoProducts,
    #[error(
        "the shop has none of the products of this history: import it first, see `mobimir import --help`"
    )]
    NothingToReplay,
    #[error("{what}: the shop answered {answer}")]
    Refused { what: String, answer: String },
    #[error(
        "a run that fills up the stock needs the operator's token: set MOBIMIR_OPERATOR_TOKEN, or --keep-stock"
    )]
    NoOperator,
}

/// Where a shop is: `http://host` or `http://host:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// With its port, if one was named: what requests call the shop.
    host: String,
    has_port: bool,
}

impl FromStr for Target {
    type Err = ShopError;

    fn from_str(url: &str) -> Result<Self, ShopError> {
        let bad = || ShopError::BadAddress(url.to_owned());
        let host = url.strip_prefix("http://").ok_or_else(bad)?;
        let host = host.strip_suffix('/').unwrap_or(host);
        // The colons of an IPv6 address stand in brackets.
        let after_brackets = host.rfind(']').map_or(0, |at| at + 1);
        let (name, port) = match host[after_brackets..].rfind(':') {
            Some(at) => (&host[..after_brackets + at], Some(&host[after_brackets + at + 1..])),
            None => (host, None),
        };
        let is_name = |name: &str| {
            let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
            match bare {
                Some(bare) => bare.parse::<Ipv6Addr>().is_ok(),
                None => {
                    !name.is_empty()
                        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
                }
            }
        };
        if !is_name(name) || port.is_some_and(|port| port.parse::<u16>().is_err()) {
            return Err(bad());
        }
        Ok(Self { host: host.to_owned(), has_port: port.is_some() })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.host)
    }
}

impl Target {
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        let port = if self.has_port { "" } else { ":80" };
        let mut found = format!("{}{port}", self.host).to_socket_addrs()?;
        found.next().ok_or(io::ErrorKind::NotFound.into())
    }
}

/// Stock of a product in a zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Stock {
    pub(crate) available: u64,
    #[serde(default)]
    pub(crate) reserved: u64,
    #[serde(default)]
    pub(crate) sold: u64,
}

/// Stock of all products, by zone. Without an operator's token only what is available is known.
pub(crate) type AllStock = Vec<BTreeMap<String, Stock>>;

/// Tells people how far something is that takes long.
pub type Progress<'a> = &'a mut dyn FnMut(&str, u64, u64);

/// The products of the catalogue, from its first page on.
pub(crate) fn goods(
    wire: &mut Wire,
    profile: &Profile,
    random: &mut Random,
    progress: Progress<'_>,
) -> Result<Goods, ShopError> {
    let wanted = profile.goods.products_max;
    let (what, mut listed): (&str, Vec<Listed>) = ("reading the catalogue", Vec::new());
    lists(
        wire,
        what,
        1,
        &mut |_, _, _| {},
        |_| "/v1/products?".to_owned(),
        |_| Parts::default(),
        |_, products| {
            listed.extend(products);
            progress(what, listed.len().min(wanted) as u64, wanted as u64);
            listed.len() < wanted
        },
    )?;
    listed.truncate(wanted);
    Goods::new(listed, &profile.goods, random).ok_or(ShopError::NoProducts)
}

/// Everybody who will shop: users first, signed up if they are new, then guests.
pub(crate) fn shoppers(
    wire: &mut Wire,
    profile: &Profile,
    zones: usize,
    seed: u64,
    progress: Progress<'_>,
) -> Result<Vec<Shopper>, ShopError> {
    let (users, guests) = (profile.shoppers.users, profile.shoppers.guests);
    // The same seed means the same people, who are signed up already the second time.
    let credentials: Vec<String> = (0..users)
        .map(|number| {
            format!(
                r#"{{"email":"shopper-{seed}-{number}@load.example","password":"shopper {seed} {number}"}}"#
            )
        })
        .collect();
    let body = |number: usize| Parts { body: Some(&credentials[number]), ..Parts::default() };
    let known = |answer: Answer<'_>| answer.status == 409 && code(answer) == Some("email_taken");
    all(
        wire,
        "signing up",
        users,
        progress,
        |number, out| out.put("POST", &["/v1/users"], body(number)),
        |_, answer| (answer.status == 201 || known(answer)).then_some(()),
    )?;
    let logged_in = all(
        wire,
        "logging in",
        users,
        progress,
        |number, out| out.put("POST", &["/v1/sessions/login"], body(number)),
        |_, answer| session(answer, 200),
    )?;
    // What they left in their carts the last time would be ordered with the rest.
    all(
        wire,
        "emptying carts",
        users,
        progress,
        |number, out| out.put("DELETE", &["/v1/cart"], Parts::of(&logged_in[number].token)),
        |_, answer| (answer.status == 200).then_some(()),
    )?;
    let visiting = all(
        wire,
        "letting guests in",
        guests,
        progress,
        |_, out| out.put("POST", &["/v1/sessions"], Parts { body: Some("{}"), ..Parts::default() }),
        |_, answer| session(answer, 201),
    )?;
    let zone = |number: usize| (number % zones) as u16;
    let users = logged_in.into_iter().zip(credentials).enumerate();
    let users = users.map(|(at, (session, credentials))| {
        let mut user = Shopper::new(session.token, Some(credentials), zone(at));
        user.user_id = session.user_id;
        user
    });
    let guests = visiting.into_iter().enumerate();
    let guests = guests.map(|(at, session)| Shopper::new(session.token, None, zone(at)));
    Ok(users.chain(guests).collect())
}

/// Fills up what is below the profile's limit, and sets what a flash sale is to sell.
pub(crate) fn fill_stock(
    wire: &mut Wire,
    profile: &Profile,
    goods: &Goods,
    zones: &[String],
    stock: &AllStock,
    operator: &str,
    progress: Progress<'_>,
) -> Result<(), ShopError> {
    let flash = profile.goods.flash_stock.map(|units| (goods.most_wanted() as usize, units));
    let mut wanted: Vec<(usize, &str, u64)> = Vec::new();
    for (product, found) in stock.iter().enumerate() {
        for (at, zone) in zones.iter().enumerate() {
            let available = found.get(zone).map_or(0, |stock| stock.available);
            match flash {
                Some((hot, units)) if hot == product => {
                    wanted.push((product, zone, if at == 0 { units } else { 0 }));
                }
                _ if available < profile.goods.stock_at_least => {
                    wanted.push((product, zone, profile.goods.stock_at_least));
                }
                _ => {}
            }
        }
    }
    all(
        wire,
        "filling up the stock",
        wanted.len(),
        progress,
        |number, out| {
            let (product, zone, units) = wanted[number];
            let path = ["/v1/products/", &goods.products[product].id, "/stock/", zone];
            let body = format!(r#"{{"quantity":{units}}}"#);
            out.put("PUT", &path, Parts { body: Some(&body), ..Parts::of(operator) });
        },
        |_, answer| (answer.status == 200).then_some(()),
    )?;
    Ok(())
}

pub(crate) fn stock(
    wire: &mut Wire,
    goods: &Goods,
    operator: Option<&str>,
    progress: Progress<'_>,
) -> Result<AllStock, ShopError> {
    all(
        wire,
        "reading the stock",
        goods.products.len(),
        progress,
        |number, out| {
            let stock = if operator.is_some() { "/stock?detail=true" } else { "/stock" };
            let path = ["/v1/products/", &goods.products[number].id, stock];
            out.put("GET", &path, Parts { token: operator, ..Parts::default() });
        },
        |_, answer| parse_stock(answer, operator.is_some()),
    )
}

/// The same, when nothing is held for orders that an earlier crowd has left open.
pub(crate) fn settled_stock(
    wire: &mut Wire,
    goods: &Goods,
    operator: Option<&str>,
    progress: Progress<'_>,
) -> Result<AllStock, ShopError> {
    let until = Instant::now() + PATIENCE;
    loop {
        let found = stock(wire, goods, operator, progress)?;
        let settled = found.iter().flat_map(BTreeMap::values).all(|stock| stock.reserved == 0);
        if settled || Instant::now() >= until {
            return Ok(found);
        }
        std::thread::sleep(PAUSE);
    }
}

fn parse_stock(answer: Answer<'_>, detailed: bool) -> Option<BTreeMap<String, Stock>> {
    if answer.status != 200 {
        None
    } else if detailed {
        serde_json::from_slice(answer.body).ok()
    } else {
        let available: BTreeMap<String, u64> = serde_json::from_slice(answer.body).ok()?;
        let stock = |available| Stock { available, ..Stock::default() };
        Some(available.into_iter().map(|(zone, units)| (zone, stock(units))).collect())
    }
}

/// The limits of the shop's policy.
pub(crate) fn limits(wire: &mut Wire, operator: &str) -> Result<Limits, ShopError> {
    #[derive(Deserialize)]
    struct Policy {
        alerts: Alerts,
    }
    #[derive(Deserialize)]
    struct Alerts {
        latency: Latency,
    }
    #[derive(Deserialize)]
    struct Latency {
        read_p99: String,
        write_p99: String,
    }
    let policy: Policy = one(wire, "reading the policy", "/v1/ops/policy", Some(operator))?;
    let time = |text: &str| {
        let ms = mobimir_core::policy::Period::parse(text)?.as_ms();
        Some(Duration::from_millis(u64::try_from(ms).ok()?))
    };
    let Latency { read_p99, write_p99 } = &policy.alerts.latency;
    Ok(Limits::new(time(read_p99), time(write_p99)))
}

/// What the shop's process has used so far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct UsedSoFar {
    pub(crate) cpu_s: f64,
    pub(crate) memory_bytes: f64,
}

/// `None` when it does not tell.
pub(crate) fn usage(wire: &mut Wire) -> Option<UsedSoFar> {
    let take = |text: &str, name: &str| -> Option<f64> {
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
    };
    let told = all(
        wire,
        "reading the metrics",
        1,
        &mut |_, _, _| {},
        |_, out| out.put("GET", &["/metrics"], Parts::default()),
        |_, answer| {
            let text = std::str::from_utf8(answer.body).ok()?;
            Some((take(text, "process_cpu_seconds_total"), take(text, "process_resident_memory_bytes")))
        },
    );
    let (cpu_s, memory_bytes) = told.ok()?.pop()?;
    Some(UsedSoFar { cpu_s: cpu_s?, memory_bytes: memory_bytes? })
}

/// Waits until the shop is idle: until it has used next to no processor for so long. One that does not tell is given this
/// time alone.
pub(crate) fn rest(wire: &mut Wire, period: Duration, stop: &AtomicBool) {
    let mut before = usage(wire);
    for _ in 0..RESTS_MAX {
        std::thread::sleep(period);
        let after = usage(wire);
        let used_s = before.zip(after).map(|(before, after)| after.cpu_s - before.cpu_s);
        let is_busy = used_s.is_some_and(|used_s| used_s > period.as_secs_f64() * IDLE_CORES_MAX);
        if !is_busy || stop.load(Ordering::Relaxed) {
            return;
        }
        before = after;
    }
}

/// One thing that is asked for until it comes.
pub(crate) fn one<T: for<'a> Deserialize<'a>>(
    wire: &mut Wire,
    what: &str,
    path: &str,
    token: Option<&str>,
) -> Result<T, ShopError> {
    let mut found = all(
        wire,
        what,
        1,
        &mut |_, _, _| {},
        |_, out| out.put("GET", &[path], Parts { token, ..Parts::default() }),
        |_, answer| (answer.status == 200).then(|| serde_json::from_slice(answer.body).ok()).flatten(),
    )?;
    found.pop().ok_or_else(|| ShopError::Refused { what: what.to_owned(), answer: "nothing".to_owned() })
}

/// Many lists, each page by page for as long as somebody takes them. All are read at the same time. A path ends with `?` or
/// `&`.
pub(crate) fn lists<'a, T: for<'b> Deserialize<'b>>(
    wire: &mut Wire,
    what: &str,
    count: usize,
    progress: Progress<'_>,
    path: impl Fn(usize) -> String,
    parts: impl Fn(usize) -> Parts<'a>,
    mut take: impl FnMut(usize, Vec<T>) -> bool,
) -> Result<(), ShopError> {
    #[derive(Deserialize)]
    struct Page<T> {
        items: Vec<T>,
        next: Option<String>,
    }
    // Which have a next page, and where it begins.
    let mut open: Vec<(usize, String)> = (0..count).map(|list| (list, String::new())).collect();
    while !open.is_empty() {
        let pages: Vec<Page<T>> = all(
            wire,
            what,
            open.len(),
            progress,
            |number, out| {
                let (list, after) = &open[number];
                out.put("GET", &[&path(*list), PAGE_ITEMS, after], parts(*list));
            },
            |_, answer| (answer.status == 200).then(|| serde_json::from_slice(answer.body).ok()).flatten(),
        )?;
        let read = std::mem::take(&mut open).into_iter().zip(pages);
        open = read
            .filter_map(|((list, _), page)| {
                let goes_on = take(list, page.items);
                page.next.filter(|_| goes_on).map(|next| (list, format!("&after={}", encoded(&next))))
            })
            .collect();
    }
    Ok(())
}

/// Many things, each asked for until it comes.
pub(crate) fn all<T>(
    wire: &mut Wire,
    what: &str,
    count: usize,
    progress: Progress<'_>,
    ask: impl FnMut(usize, &mut Request),
    mut take: impl FnMut(usize, Answer<'_>) -> Option<T>,
) -> Result<Vec<T>, ShopError> {
    let mut found: Vec<Option<T>> = (0..count).map(|_| None).collect();
    let (mut done, mut last_wrong, mut refused) = (0, String::new(), false);
    let missing = ask_all(wire, count, PATIENCE, ask, |number, outcome: Outcome<'_>| {
        let taken = match outcome {
            Ok(answer) => {
                let taken = take(number, answer);
                if taken.is_none() {
                    last_wrong = format!("{} {}", answer.status, shown(answer.body));
                    // What is refused for good will be so the next time.
                    refused |=
                        (400..500).contains(&answer.status) && !matches!(answer.status, 408 | 409 | 429);
                }
                taken
            }
            Err(lost) => {
                last_wrong = lost.to_string();
                None
            }
        };
        let Some(taken) = taken else { return if refused { Heard::Done } else { Heard::Again } };
        found[number] = Some(taken);
        done += 1;
        if done % 64 == 0 || done == count {
            progress(what, done as u64, count as u64);
        }
        Heard::Done
    })?;
    if missing.is_empty() && !refused {
        return Ok(found.into_iter().flatten().collect());
    }
    Err(ShopError::Refused { what: what.to_owned(), answer: last_wrong })
}

#[derive(Deserialize)]
struct Session {
    token: String,
    /// Of a user alone.
    #[serde(default)]
    user_id: Box<str>,
}

fn session(answer: Answer<'_>, status: u16) -> Option<Session> {
    let session = serde_json::from_slice(answer.body).ok()?;
    (answer.status == status).then_some(session)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::test_server::{Act, TestServer};

    const PERIOD: Duration = Duration::from_millis(100);

    /// How often a shop was looked at until it was taken for idle.
    fn looks(told: fn(usize) -> &'static str) -> usize {
        let looks = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let counted = looks.clone();
        let server = TestServer::start(Arc::new(move |number, _| {
            counted.store(number + 1, Ordering::SeqCst);
            Act::Answer(told(number))
        }));
        let mut wire = Wire::connect(server.address, "shop", 1, PATIENCE).expect("a connection");
        rest(&mut wire, PERIOD, &AtomicBool::new(false));
        looks.load(Ordering::SeqCst)
    }

    #[test]
    fn a_shop_is_called_what_its_address_says() {
        for (url, host, port) in [
            ("http://127.0.0.1:8080", "127.0.0.1:8080", 8080),
            ("http://localhost:8080/", "localhost:8080", 8080),
            ("http://127.0.0.1", "127.0.0.1", 80),
            ("http://[::1]:8080", "[::1]:8080", 8080),
            ("http://[::1]", "[::1]", 80),
        ] {
            let target: Target = url.parse().expect(url);
            assert_eq!(target.host(), host);
            assert_eq!(target.address().expect(url).port(), port);
            assert_eq!(target.to_string(), url.trim_end_matches('/'));
        }
        for url in [
            "shop",
            "https://shop",
            "http://",
            "http://:80",
            "http://shop:99999",
            "http://a b",
            "http://a/b",
            "http://::1",
        ] {
            assert!(matches!(url.parse::<Target>(), Err(ShopError::BadAddress(_))), "{url}");
        }
    }

    #[test]
    fn a_shop_is_left_alone_until_it_has_nothing_to_do() {
        let busy_at_first = |number| match number {
            0 => "process_cpu_seconds_total 1\nprocess_resident_memory_bytes 1\n",
            1 => "process_cpu_seconds_total 2\nprocess_resident_memory_bytes 1\n",
            _ => "process_cpu_seconds_total 2.001\nprocess_resident_memory_bytes 1\n",
        };
        assert_eq!(looks(busy_at_first), 3);
        let always_busy = |number| match number % 2 {
            0 => "process_cpu_seconds_total 1\nprocess_resident_memory_bytes 1\n",
            _ => "process_cpu_seconds_total 9\nprocess_resident_memory_bytes 1\n",
        };
        assert_eq!(looks(always_busy), 3);
        assert_eq!(looks(|_| "tells nothing"), 2);
    }
}
