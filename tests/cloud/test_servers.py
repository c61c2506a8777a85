from __future__ import annotations

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion
from servers import MosquittoServer, NatsServer, answers


def test_a_server_keeps_its_ports_over_kill_and_restart(mqtt_server: NatsServer | MosquittoServer) -> None:
    first = mqtt_server.pid
    mqtt_server.kill()
    assert not answers(mqtt_server.mqtt_port)
    mqtt_server.restart()
    assert mqtt_server.pid != first
    client = paho.Client(CallbackAPIVersion.VERSION2)
    client.connect("127.0.0.1", mqtt_server.mqtt_port)
    client.disconnect()


def test_endpoints_name_the_server_for_mqtt(nats: NatsServer, mosquitto: MosquittoServer) -> None:
    assert nats.endpoints().mqtt_port == nats.mqtt_port
    assert nats.endpoints(mosquitto).mqtt_port == mosquitto.mqtt_port
    assert nats.endpoints(mosquitto).mqtt_kind == "mosquitto"
