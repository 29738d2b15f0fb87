//! What a program with the crate rocketmq does; a line of JSON for each part.
//!
//! rust-program HOST:PORT

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rocketmq::conf::{ClientOption, ProducerOption, SimpleConsumerOption};
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::MessageBuilder;
use rocketmq::model::transaction::{Transaction, TransactionResolution};
use rocketmq::{Producer, SimpleConsumer};

const SECONDS: u64 = 60;

fn client() -> ClientOption {
    let mut option = ClientOption::default();
    option.set_access_url(std::env::args().nth(1).expect("HOST:PORT"));
    option.set_long_polling_timeout(Duration::from_secs(5));
    option
}

fn producing(topics: Vec<&str>) -> ProducerOption {
    let mut option = ProducerOption::default();
    option.set_topics(topics);
    option
}

/// Prints a part; the found bodies have no characters that JSON escapes.
fn told(part: &str, found: &[String], more: &str) {
    let bodies: Vec<String> = found.iter().map(|one| format!("\"{one}\"")).collect();
    println!("{{\"part\": \"{part}\", \"found\": [{}{more}]}}", bodies.join(", "));
}

fn now_seconds() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
}

/// The bodies of this many messages, acknowledged, with their attempts, in order.
async fn received(topic: &str, group: &str, count: usize) -> Vec<String> {
    let mut option = SimpleConsumerOption::default();
    option.set_topics(vec![topic]);
    option.set_consumer_group(group);
    let mut consumer = SimpleConsumer::new(option, client()).unwrap();
    consumer.start().await.unwrap();
    let all = FilterExpression::new(FilterType::Tag, "*");
    let mut found = Vec::new();
    let end = Instant::now() + Duration::from_secs(SECONDS);
    while found.len() < count && Instant::now() < end {
        let wait = Duration::from_secs(30);
        for each in consumer.receive_with(topic, &all, 16, wait).await.unwrap_or_default() {
            let body = String::from_utf8_lossy(each.body()).to_string();
            found.push(format!("{body}#{}", each.delivery_attempt()));
            consumer.ack(&each).await.unwrap();
        }
    }
    consumer.shutdown().await.unwrap();
    found
}

#[tokio::main]
async fn main() {
    let mut producer = Producer::new(producing(vec!["Normal", "Fifo", "Delay"]), client()).unwrap();
    producer.start().await.unwrap();
    for number in 0..5 {
        let message = MessageBuilder::builder()
            .set_topic("Normal")
            .set_body(format!("simple-{number}").into_bytes())
            .build();
        producer.send(message.unwrap()).await.unwrap();
    }
    let mut simple = received("Normal", "Simple", 5).await;
    simple.sort();
    told("simple", &simple, "");
    for number in 0..6 {
        let body = format!("ordered-{number}").into_bytes();
        let message = MessageBuilder::fifo_message_builder("Fifo", body, "one").build();
        producer.send(message.unwrap()).await.unwrap();
    }
    told("ordered", &received("Fifo", "Ordered", 6).await, "");
    let due = now_seconds() + 2;
    let late = MessageBuilder::delay_message_builder("Delay", b"delayed".to_vec(), due).build();
    producer.send(late.unwrap()).await.unwrap();
    let delayed = received("Delay", "Delayed", 1).await;
    told("delayed", &delayed, if now_seconds() >= due { ", true" } else { ", false" });
    producer.shutdown().await.unwrap();
    transactions().await;
}

/// One committed, one rolled back, one that the checker commits.
async fn transactions() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let asked_there = asked.clone();
    let checker = Box::new(move |_, message: rocketmq::model::message::MessageView| {
        let body = String::from_utf8_lossy(message.body()).to_string();
        asked_there.lock().unwrap().push(body);
        TransactionResolution::COMMIT
    });
    let mut producer =
        Producer::new_transaction_producer(producing(vec!["Trans"]), client(), checker).unwrap();
    producer.start().await.unwrap();
    for (body, end) in [("kept", "commit"), ("dropped", "rollback"), ("open", "")] {
        let message = MessageBuilder::transaction_message_builder("Trans", body.into()).build();
        let transaction = producer.send_transaction_message(message.unwrap()).await.unwrap();
        match end {
            "commit" => transaction.commit().await.unwrap(),
            "rollback" => transaction.rollback().await.unwrap(),
            _ => (),
        }
    }
    let mut found = received("Trans", "Paid", 2).await;
    found.sort();
    told("transactions", &found, "");
    let mut checked = asked.lock().unwrap().clone();
    checked.sort();
    checked.dedup();
    told("checked", &checked, "");
    producer.shutdown().await.unwrap();
}
