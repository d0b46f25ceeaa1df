"""Java's Kafka client, called from Python: in a process of its own, so as not to disturb Spark's measurements."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from examples.servers.broker import Broker, broker_jars, java

TEXT = "org.apache.kafka.common.serialization.String"


class Record(NamedTuple):
    """A record read from a topic: key, value, and when it was written, in milliseconds since the epoch."""

    key: str | None
    value: str
    written: int


class Client:
    """Creates topics, writes and reads records; keys and values are text."""

    def __init__(self, gateway: JavaGateway, address: str) -> None:
        self._jvm, self._gateway = gateway.jvm, gateway
        self._kafka = gateway.jvm.org.apache.kafka
        settings = {"bootstrap.servers": address, "acks": "all", "linger.ms": "0"}
        settings |= {f"{what}.serializer": f"{TEXT}Serializer" for what in ("key", "value")}
        self._producer = self._kafka.clients.producer.KafkaProducer(self._properties(settings))
        self._address = address

    def _properties(self, settings: Mapping[str, str]) -> Any:
        properties = self._jvm.java.util.Properties()
        for name, value in settings.items():
            properties.setProperty(name, value)
        return properties

    def make(self, topic: str, partitions: int, **settings: str) -> None:
        """Create a topic, with settings such as `cleanup_policy="compact"`."""
        optional = self._jvm.java.util.Optional
        new = self._kafka.clients.admin.NewTopic(topic, optional.of(partitions), optional.empty())
        configs = self._jvm.java.util.HashMap()
        for name, value in settings.items():
            configs.put(name.replace("_", "."), value)
        admin = self._kafka.clients.admin.Admin.create(self._properties({"bootstrap.servers": self._address}))
        try:
            admin.createTopics(self._jvm.java.util.Collections.singleton(new.configs(configs))).all().get()
        finally:
            admin.close()

    def send(self, topic: str, value: str, partition: int) -> None:
        """Write a record; it is certain to be there after `flush`."""
        self._producer.send(self._kafka.clients.producer.ProducerRecord(topic, partition, None, value))

    def flush(self) -> None:
        """Wait until all records sent have been written."""
        self._producer.flush()

    def reader(self, topic: str, partitions: int) -> "Reader":
        """Return a reader that starts at the beginning of a topic."""
        settings = {"bootstrap.servers": self._address, "isolation.level": "read_committed"}
        settings |= {f"{what}.deserializer": f"{TEXT}Deserializer" for what in ("key", "value")}
        consumer = self._kafka.clients.consumer.KafkaConsumer(self._properties(settings))
        parts = self._jvm.java.util.ArrayList()
        for at in range(partitions):
            parts.add(self._kafka.common.TopicPartition(topic, at))
        consumer.assign(parts)
        consumer.seekToBeginning(parts)
        return Reader(consumer, self._jvm.java.time.Duration.ofMillis)


class Reader:
    """Reads a topic."""

    def __init__(self, consumer: Any, duration: Any) -> None:
        self._consumer, self._duration = consumer, duration

    def poll(self, milliseconds: int = 200) -> Sequence[Record]:
        """Return the records that have arrived, waiting up to `milliseconds` for the first."""
        answer = self._consumer.poll(self._duration(milliseconds)).iterator()
        records = []
        while answer.hasNext():
            record = answer.next()
            records.append(Record(record.key(), record.value(), record.timestamp()))
        return records


@contextmanager
def client(broker: Broker) -> Iterator[Client]:
    """Start a client of a broker, and stop it at the end."""
    py4j = next((Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar"))
    options = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    classes = f"{broker_jars()}/*"
    port, token = launch_gateway(
        jarpath=str(py4j), classpath=classes, javaopts=options, java_path=java(), die_on_exit=True, enable_auth=True
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=False))
    try:
        yield Client(gateway, broker.address)
    finally:
        gateway.shutdown()
