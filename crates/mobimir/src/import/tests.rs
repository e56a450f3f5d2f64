use clap::Parser;

use super::*;

#[derive(Debug, Parser)]
struct Command {
    #[command(flatten)]
    import: ImportArgs,
}

fn parse(arguments: &[&str]) -> Result<ImportArgs, clap::Error> {
    let arguments = ["import", "online-retail"].iter().chain(arguments);
    Command::try_parse_from(arguments).map(|command| command.import)
}

async fn run_to(arguments: &[&str]) -> String {
    let zones = vec![Zone::parse("MSK").unwrap()];
    let ended = run(parse(arguments).unwrap(), zones, Timestamp::default(), |_| bail!("opened")).await;
    ended.unwrap_err().to_string()
}

#[test]
fn exactly_one_destination_is_named() {
    assert!(parse(&["f.csv", "--data", "shop"]).is_ok());
    assert!(parse(&["f.csv", "--target", "http://127.0.0.1:8080", "--json"]).is_ok());
    assert!(parse(&["f.csv"]).is_err());
    assert!(parse(&["f.csv", "--data", "shop", "--target", "http://127.0.0.1:8080"]).is_err());
    assert!(parse(&["--data", "shop"]).is_err());
}

#[tokio::test]
async fn a_running_shop_is_refused_with_a_way_out() {
    let error = run_to(&["f.csv", "--target", "http://user:secret@127.0.0.1:8080"]).await;
    assert!(error.contains("--data DIR") && !error.contains("secret"), "{error}");
}

#[tokio::test]
async fn a_missing_file_is_noticed_before_the_store_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("none.csv");
    let error = run_to(&[file.to_str().unwrap(), "--data", "shop"]).await;
    assert!(error.contains("none.csv cannot be opened"), "{error}");
    std::fs::write(&file, "").unwrap();
    assert_eq!(run_to(&[file.to_str().unwrap(), "--data", "shop"]).await, "opened");
}
