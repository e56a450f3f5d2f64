//! What the pages are made of, tried apart from any store.

mod journey;

use std::collections::BTreeMap;

use askama::Template;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use mobimir_core::{
    id::ProductId,
    money::Money,
    order::{OrderStatus, StatusChange},
    product::{Attribute, Product},
    time::Timestamp,
};
use uuid::Uuid;

use super::{
    catalogue::{self, Card},
    links,
    notice::Notice,
    orders, origin,
    pictures::Picture,
    wording,
};
use crate::cookies;

fn headers(given: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in given {
        headers.append(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
    }
    headers
}

#[test]
fn a_price_is_grouped_and_shows_kopecks_only_where_there_are_some() {
    let price = |kopecks| wording::price(Money::from_kopecks(kopecks)).replace('\u{a0}', " ");
    assert_eq!(price(1_299_000), "12 990 ₽");
    assert_eq!(price(0), "0 ₽");
    assert_eq!(price(99_900), "999 ₽");
    assert_eq!(price(100_050), "1 000,50 ₽");
    assert_eq!(price(5), "0,05 ₽");
    assert_eq!(price(999_999_999_999), "9 999 999 999,99 ₽");
    assert_eq!(price(-100), "−1 ₽");
}

#[test]
fn a_price_is_understood_as_people_type_it() {
    let typed = |text| catalogue::typed_price(text).map(|price| price.map(Money::kopecks));
    assert_eq!(typed("12 990 ₽"), Ok(Some(1_299_000)));
    assert_eq!(typed("12\u{a0}990,5"), Ok(Some(1_299_050)));
    assert_eq!(typed("  "), Ok(None));
    for bad in ["abc", "-1", "1.234", "1e3", "99999999999"] {
        assert_eq!(typed(bad), Err(()), "{bad}");
    }
}

#[test]
fn nouns_follow_their_numbers() {
    let goods = |number| wording::goods(number).replace('\u{a0}', " ");
    let said: Vec<String> = [1, 2, 5, 11, 14, 21, 112, 1_001].into_iter().map(goods).collect();
    let expected = [
        "1 товар",
        "2 товара",
        "5 товаров",
        "11 товаров",
        "14 товаров",
        "21 товар",
        "112 товаров",
        "1 001 товар",
    ];
    assert_eq!(said, expected);
}

#[test]
fn times_are_those_of_moscow() {
    let at = Timestamp::parse("2025-12-31T22:05:00Z").unwrap();
    assert_eq!(wording::time(at).replace('\u{a0}', " "), "1 января 2026, 01:05");
    assert_eq!(wording::date(at).replace('\u{a0}', " "), "1 января 2026");
}

#[test]
fn a_cookie_is_found_among_others() {
    let jar = headers(&[
        ("cookie", "theme=dark; mobimir_session=abc-_1;x"),
        ("cookie", "mobimir_notice=\"added\""),
    ]);
    assert_eq!(cookies::find(&jar, cookies::SESSION), Some("abc-_1"));
    assert_eq!(cookies::find(&jar, cookies::NOTICE), Some("added"));
    assert_eq!(cookies::find(&jar, "session"), None);
    assert_eq!(
        cookies::find(&headers(&[("cookie", "xmobimir_session=1; ;=;mobimir_session")]), cookies::SESSION),
        None
    );
    assert_eq!(cookies::find(&HeaderMap::new(), cookies::SESSION), None);
}

#[test]
fn a_cookie_is_out_of_reach_for_scripts_and_other_sites() {
    let cookie = cookies::set(cookies::SESSION, "abc", 60, false).unwrap();
    assert_eq!(cookie.to_str().unwrap(), "mobimir_session=abc; Path=/; Max-Age=60; HttpOnly; SameSite=Lax");
    assert!(cookies::set(cookies::SESSION, "abc", 60, true).unwrap().to_str().unwrap().ends_with("; Secure"));
    assert!(cookies::unset(cookies::SESSION, false).unwrap().to_str().unwrap().contains("Max-Age=0"));
    for bad in ["a;b", "a b", "a\r\nSet-Cookie: x=y", "ы"] {
        assert_eq!(cookies::set(cookies::SESSION, bad, 60, false), None, "{bad}");
    }
}

#[test]
fn posts_of_other_sites_are_foreign() {
    let own = |given: &[(&'static str, &str)]| origin::is_own(&headers(given));
    let host = ("host", "shop.ru:8080");
    assert!(own(&[host, ("origin", "http://shop.ru:8080")]));
    assert!(own(&[host, ("origin", "https://SHOP.ru:8080")]));
    assert!(own(&[host, ("referer", "http://shop.ru:8080/cart?x=http://evil.ru")]));
    assert!(own(&[host]), "no browser leaves out both");
    assert!(own(&[("host", "inside:1"), ("x-forwarded-host", "shop.ru"), ("origin", "https://shop.ru")]));
    for foreign in [
        "null",
        "",
        "http://evil.ru",
        "http://shop.ru",
        "http://shop.ru:8081",
        "http://shop.ru:8080.evil.ru",
        "http://shop.ru:8080@evil.ru",
        "ftp://shop.ru:8080",
        "shop.ru:8080",
    ] {
        assert!(!own(&[host, ("origin", foreign)]), "{foreign}");
        assert!(!own(&[host, ("origin", foreign), ("referer", "http://shop.ru:8080/")]), "{foreign}");
        assert!(!own(&[host, ("referer", foreign)]), "{foreign}");
    }
    assert!(!own(&[("origin", "http://shop.ru")]), "without a host nothing is our own");
    let mut garbled = headers(&[host]);
    garbled.insert(header::ORIGIN, HeaderValue::from_bytes(b"http://\xff").unwrap());
    assert!(!origin::is_own(&garbled));
}

#[test]
fn one_comes_back_to_this_shop_only() {
    for local in ["/", "/cart", "/catalog?q=%D1%87&after=x#p-1", "/product/1//2"] {
        assert_eq!(links::local_path(local), Some(local));
    }
    let long = format!("/{}", "a".repeat(3_000));
    for away in [
        "",
        "//evil.ru",
        "/\\evil.ru",
        "\\/evil.ru",
        "http://evil.ru",
        "javascript:alert(1)",
        "cart",
        " /cart",
        "/cart\r\nSet-Cookie: a=b",
        "/\t/evil.ru",
        "/корзина",
        &long,
    ] {
        assert_eq!(links::local_path(away), None, "{away:?}");
    }
}

#[test]
fn a_query_survives_whatever_is_typed() {
    let link = links::with_query("/catalog", &[("q", "чай & кофе"), ("zone", ""), ("sort", "-price")]);
    assert_eq!(link, "/catalog?q=%D1%87%D0%B0%D0%B9%20%26%20%D0%BA%D0%BE%D1%84%D0%B5&sort=-price");
    assert_eq!(links::with_query("/catalog", &[("q", "")]), "/catalog");
}

#[test]
fn every_notice_comes_back_and_nothing_else_does() {
    for notice in
        [Notice::Added, Notice::Short(3), Notice::WelcomeWithCart, Notice::Ordered, Notice::LogInFirst]
    {
        assert_eq!(Notice::decode(&notice.encode()), Some(notice));
        assert!(!notice.text().is_empty());
    }
    for unknown in ["", "short.", "short.x", "<b>", "added2"] {
        assert_eq!(Notice::decode(unknown), None, "{unknown}");
    }
}

#[derive(Template)]
#[template(source = r#"{% include "storefront/card.html" %}"#, ext = "html")]
struct OneCard {
    card: Card,
    frame: Path,
    zone_code: String,
}

struct Path {
    path: String,
}

fn product(name: &str, category: &str) -> Product {
    let attributes = BTreeMap::from([("вес".to_owned(), Attribute::Integer(1))]);
    let (id, price) = (ProductId(Uuid::from_u128(7)), Money::from_kopecks(100));
    Product::new(id, name.into(), category.into(), price, attributes, BTreeMap::new(), Timestamp::default())
        .unwrap()
}

#[test]
fn a_name_is_text_whatever_it_looks_like() {
    let name = r#"<script>alert("1")</script> & 'Ко'"#;
    let card = Card::of(&product(name, "Книги"), None);
    let frame = Path { path: r#"/catalog?q="><script>"#.to_owned() };
    let html = OneCard { card, frame, zone_code: String::new() }.render().unwrap();
    assert!(!html.contains("<script"), "{html}");
    assert!(!html.contains(r#""1""#) && !html.contains("'Ко'"), "{html}");
    assert!(html.contains("&#60;script&#62;"), "{html}");
    assert!(html.contains("Нет в наличии"), "{html}");
}

#[test]
fn a_picture_shows_what_the_name_says_or_else_the_category() {
    let label =
        |name: &str, category: &str| Picture::of_product(ProductId(Uuid::nil()), name, category).label();
    assert_eq!(label("Смартфон Nova 12", "Смартфоны"), "Смартфон");
    assert_eq!(label("Чехол для смартфона", "Аксессуары"), "Чехол для телефона");
    assert_eq!(label("Детская книга «Маяк»", "Книги"), "Книги");
    assert_eq!(label("Нечто", "Книги"), "Книги");
    assert_eq!(label("WHITE HANGING HEART", "Gifts"), "Коробка с товаром");
}

#[test]
fn every_picture_is_found_by_its_address_and_fully_tinted() {
    for tint in 0..8 {
        for name in ["phone", "box", "home"] {
            let picture = Picture::of_file(&format!("{name}-{tint}.svg")).unwrap();
            assert!(picture.url().ends_with(&format!("/pictures/{name}-{tint}.svg")));
            assert_eq!(picture.draw().contains("#4a7bd8"), tint == 0);
        }
    }
    for unknown in ["phone.svg", "phone-8.svg", "phone--1.svg", "-0.svg", "../phone-0.svg", "phone-0.png"] {
        assert_eq!(Picture::of_file(unknown), None, "{unknown}");
    }
}

#[test]
fn an_order_shows_where_it_has_been_and_what_lies_ahead() {
    let change = |status| StatusChange { status, at: Timestamp::default(), operator: None };
    let words = |history: &[OrderStatus]| {
        let history: Vec<StatusChange> = history.iter().copied().map(change).collect();
        let steps = orders::steps(&history);
        assert!(steps.iter().filter(|step| step.is_last_taken).count() <= 1);
        steps
            .iter()
            .map(|step| format!("{}{}", if step.at.is_some() { "+" } else { "" }, step.words))
            .collect::<Vec<_>>()
    };
    use OrderStatus::{Cancelled, Confirmed, Delivered, Paid, Shipped};
    assert_eq!(words(&[Confirmed, Paid]), ["+Подтверждён", "+Оплачен", "Отправлен", "Доставлен"]);
    assert_eq!(words(&[Confirmed, Cancelled]), ["+Подтверждён", "+Отменён"]);
    assert_eq!(words(&[Confirmed, Paid, Shipped, Delivered]).len(), 4);
    assert!(words(&[]).is_empty());
}
