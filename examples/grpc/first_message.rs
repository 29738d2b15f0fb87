//! Send a message and receive it, with the crate rocketmq through `aerobee up --grpc`.

use std::error::Error;

use rocketmq::conf::{ClientOption, ProducerOption, SimpleConsumerOption};
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::MessageBuilder;
use rocketmq::{Producer, SimpleConsumer};

fn client() -> ClientOption {
    let mut option = ClientOption::default();
    option.set_access_url(std::env::args().nth(1).unwrap_or("127.0.0.1:8081".into()));
    option
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut producing = ProducerOption::default();
    producing.set_topics(vec!["orders"]);
    let mut producer = Producer::new(producing, client())?;
    producer.start().await?;
    let message = MessageBuilder::builder().set_topic("orders").set_body(b"12 EUR".to_vec()).build()?;
    println!("sent {}", producer.send(message).await?.message_id());
    producer.shutdown().await?;

    let mut consuming = SimpleConsumerOption::default();
    consuming.set_topics(vec!["orders"]);
    consuming.set_consumer_group("billing");
    let mut consumer = SimpleConsumer::new(consuming, client())?;
    consumer.start().await?;
    let all = FilterExpression::new(FilterType::Tag, "*");
    let mut received = Vec::new();
    while received.is_empty() {
        received = consumer.receive("orders", &all).await.unwrap_or_default();
    }
    for message in &received {
        println!("received {}", String::from_utf8_lossy(message.body()));
        consumer.ack(message).await?;
    }
    consumer.shutdown().await?;
    Ok(())
}
