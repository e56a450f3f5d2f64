//! Whose address a request comes from when there are proxies on the way.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName};

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Proxies whose word is taken for who asked them.
#[derive(Clone, Debug, Default)]
pub(crate) struct TrustedProxies(Vec<IpAddr>);

impl TrustedProxies {
    pub(crate) fn new(addresses: &[IpAddr]) -> Self {
        Self(addresses.iter().map(IpAddr::to_canonical).collect())
    }

    /// The address of whoever asked. Every proxy adds at the end whom it was asked by, and what stands before that anybody may
    /// have written: so it is the last one that is no proxy of ours.
    pub(crate) fn asker(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let mut asker = peer.to_canonical();
        let lines = headers.get_all(FORWARDED_FOR).into_iter().rev();
        let mut named = lines.flat_map(|line| line.to_str().unwrap_or_default().rsplit(','));
        while self.0.contains(&asker) {
            let Some(before) = named.next().and_then(|name| name.trim().parse::<IpAddr>().ok()) else {
                break;
            };
            asker = before.to_canonical();
        }
        asker
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn asker(trusted: &[&str], peer: &str, lines: &[&'static str]) -> String {
        let trusted: Vec<IpAddr> = trusted.iter().map(|address| address.parse().unwrap()).collect();
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(FORWARDED_FOR, HeaderValue::from_static(line));
        }
        TrustedProxies::new(&trusted).asker(peer.parse().unwrap(), &headers).to_string()
    }

    #[test]
    fn nobody_is_believed_unless_told_so() {
        assert_eq!(asker(&[], "10.0.0.1", &["203.0.113.7"]), "10.0.0.1");
        assert_eq!(asker(&["10.0.0.2"], "10.0.0.1", &["203.0.113.7"]), "10.0.0.1");
    }

    #[test]
    fn a_proxy_says_who_asked_it() {
        assert_eq!(asker(&["10.0.0.1"], "10.0.0.1", &["203.0.113.7"]), "203.0.113.7");
        assert_eq!(asker(&["10.0.0.1"], "10.0.0.1", &["2001:db8::7"]), "2001:db8::7");
        assert_eq!(asker(&["10.0.0.1"], "::ffff:10.0.0.1", &["::ffff:203.0.113.7"]), "203.0.113.7");
        assert_eq!(asker(&["10.0.0.1"], "10.0.0.1", &[]), "10.0.0.1");
    }

    #[test]
    fn what_the_client_wrote_itself_does_not_count() {
        let ours = ["10.0.0.1", "10.0.0.2"];
        assert_eq!(asker(&ours, "10.0.0.1", &["1.1.1.1, 203.0.113.7"]), "203.0.113.7");
        assert_eq!(asker(&ours, "10.0.0.1", &["1.1.1.1, 203.0.113.7, 10.0.0.2"]), "203.0.113.7");
        assert_eq!(asker(&ours, "10.0.0.1", &["1.1.1.1", "203.0.113.7,10.0.0.2"]), "203.0.113.7");
        assert_eq!(asker(&ours, "10.0.0.1", &["1.1.1.1, nonsense, 10.0.0.2"]), "10.0.0.2");
    }
}
