//! A proxy between a load and a shop that does not always tell the truth: it alters, invents, repeats and drops.

use std::{
    collections::HashMap,
    io::{self, BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use serde_json::Value;

/// What it does with a request. An error closes the connection.
pub(crate) type Behaviour = Arc<dyn Fn(&mut Exchange<'_>) -> io::Result<Answer> + Send + Sync>;

/// HTTP/1.1 on loopback, a thread for every connection.
pub(crate) struct Liar {
    pub(crate) host: String,
    shared: Arc<Shared>,
}

struct Shared {
    shop: String,
    behaviour: Behaviour,
    memory: Mutex<Memory>,
    lies: AtomicU64,
    ended: AtomicBool,
}

/// What went through so far, as the shop answered it.
#[derive(Default)]
pub(crate) struct Memory {
    /// The load has come to the run itself: what it asks for to prepare it is over.
    pub(crate) runs: bool,
    /// The last cart that each token was answered.
    pub(crate) carts: HashMap<String, Value>,
    /// Every order that was acknowledged, with the token of its owner.
    pub(crate) orders: Vec<(String, Value)>,
    /// The first product page.
    pub(crate) product: Option<Value>,
}

#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) path: String,
    headers: Vec<String>,
    pub(crate) body: Vec<u8>,
}

#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: Vec<String>,
    pub(crate) body: Vec<u8>,
}

/// One request, and the shop to ask for it.
pub(crate) struct Exchange<'a> {
    pub(crate) asked: Asked,
    shared: &'a Shared,
    shop: &'a mut BufReader<TcpStream>,
}

impl Liar {
    pub(crate) fn start(shop: &str, behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let shared = Arc::new(Shared {
            shop: shop.to_owned(),
            behaviour,
            memory: Mutex::default(),
            lies: AtomicU64::new(0),
            ended: AtomicBool::new(false),
        });
        let accepting = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if accepting.ended.load(Ordering::SeqCst) {
                    return;
                }
                let (Ok(stream), shared) = (stream, accepting.clone()) else { continue };
                // Whatever ends a connection ends it for the load as well.
                std::thread::spawn(move || drop(serve(&stream, &shared)));
            }
        });
        Self { host, shared }
    }

    /// How often it did not tell the truth.
    pub(crate) fn lies(&self) -> u64 {
        self.shared.lies.load(Ordering::SeqCst)
    }
}

impl Drop for Liar {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        // Wakes the listener up.
        drop(TcpStream::connect(&self.host));
    }
}

impl Exchange<'_> {
    /// The shop's own answer.
    pub(crate) fn forward(&mut self) -> io::Result<Answer> {
        let asked = self.asked.clone();
        self.ask(&asked)
    }

    /// Asks the shop for something else.
    pub(crate) fn ask(&mut self, asked: &Asked) -> io::Result<Answer> {
        let first = format!("{} {} HTTP/1.1", asked.method, asked.path);
        write(self.shop.get_mut(), &first, &asked.headers, &asked.body)?;
        let (first, headers, body) = read(self.shop)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
        let answer = Answer { status: status.ok_or(io::ErrorKind::InvalidData)?, headers, body };
        self.memory().take(asked, &answer);
        Ok(answer)
    }

    pub(crate) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.shared.memory.lock().unwrap()
    }

    /// Counts a lie.
    pub(crate) fn lied(&self) {
        self.shared.lies.fetch_add(1, Ordering::SeqCst);
    }
}

impl Memory {
    fn take(&mut self, asked: &Asked, answer: &Answer) {
        self.runs |= asked.is_of_run();
        if !(200..300).contains(&answer.status) {
            return;
        }
        if asked.path.starts_with("/v1/cart") {
            self.carts.insert(asked.token(), answer.json());
        } else if asked.is("POST", "/v1/orders") {
            self.orders.push((asked.token(), answer.json()));
        } else if asked.is_product_page() {
            self.product.get_or_insert_with(|| answer.json());
        }
    }

    /// An order of somebody else.
    pub(crate) fn foreign_order(&self, user_id: &Value) -> Option<&Value> {
        self.orders.iter().rev().map(|(_, order)| order).find(|order| order["user_id"] != *user_id)
    }
}

impl Asked {
    pub(crate) fn is(&self, method: &str, path: &str) -> bool {
        self.method == method && self.path == path
    }

    pub(crate) fn is_product_page(&self) -> bool {
        let id = self.path.strip_prefix("/v1/products/");
        self.method == "GET" && id.is_some_and(|id| !id.contains(['/', '?']))
    }

    pub(crate) fn is_listing(&self) -> bool {
        self.path.starts_with("/v1/products?category=")
    }

    /// The answer to it is a cart, changed just now.
    pub(crate) fn changes_cart(&self) -> bool {
        self.path.starts_with("/v1/cart") && self.method != "GET"
    }

    /// Only asked for in a run, and not before.
    fn is_of_run(&self) -> bool {
        self.is_product_page()
            || self.is_listing()
            || self.is("POST", "/v1/cart/items")
            || self.is("POST", "/v1/orders")
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }

    pub(crate) fn token(&self) -> String {
        self.header("authorization").unwrap_or_default().to_owned()
    }

    /// The same with another value of a header.
    pub(crate) fn with_header(&self, name: &str, value: &str) -> Self {
        let mut other = self.clone();
        other.headers.retain(|line| header(std::slice::from_ref(line), name).is_none());
        other.headers.push(format!("{name}: {value}"));
        other
    }

    /// A read of something else by the same user.
    pub(crate) fn instead(&self, path: String) -> Self {
        Self { method: "GET".to_owned(), path, headers: self.headers.clone(), body: Vec::new() }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

impl Answer {
    pub(crate) fn new(status: u16, json: &Value) -> Self {
        let headers = vec!["content-type: application/json".to_owned()];
        Self { status, headers, body: json.to_string().into_bytes() }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    pub(crate) fn with_json(mut self, json: &Value) -> Self {
        self.body = json.to_string().into_bytes();
        self
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }
}

fn header<'a>(headers: &'a [String], name: &str) -> Option<&'a str> {
    headers.iter().find_map(|line| {
        let (known, value) = line.split_once(':')?;
        known.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

fn serve(stream: &TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let shop = TcpStream::connect(&shared.shop)?;
    shop.set_nodelay(true)?;
    let (mut load, mut shop) = (BufReader::new(stream), BufReader::new(shop));
    while let Some((first, headers, body)) = read(&mut load)? {
        let mut words = first.split(' ').map(str::to_owned);
        let (Some(method), Some(path)) = (words.next(), words.next()) else { break };
        let asked = Asked { method, path, headers, body };
        let answer = (shared.behaviour)(&mut Exchange { asked, shared, shop: &mut shop })?;
        let first = format!("HTTP/1.1 {} Told", answer.status);
        write(&mut &*stream, &first, &answer.headers, &answer.body)?;
    }
    Ok(())
}

/// The first line, the headers but the length, and the body of a request or an answer.
type Message = (String, Vec<String>, Vec<u8>);

/// `None` at the end.
fn read(from: &mut impl BufRead) -> io::Result<Option<Message>> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if from.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let length = header(&lines, "content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    from.read_exact(&mut body)?;
    lines.retain(|line| header(std::slice::from_ref(line), "content-length").is_none());
    if lines.is_empty() {
        return Ok(None);
    }
    let headers = lines.split_off(1);
    Ok(lines.pop().map(|first| (first, headers, body)))
}

fn write(to: &mut impl Write, first: &str, headers: &[String], body: &[u8]) -> io::Result<()> {
    let mut bytes = format!("{first}\r\n").into_bytes();
    headers.iter().for_each(|line| bytes.extend_from_slice(format!("{line}\r\n").as_bytes()));
    bytes.extend_from_slice(format!("content-length: {}\r\n\r\n", body.len()).as_bytes());
    bytes.extend_from_slice(body);
    to.write_all(&bytes)
}
