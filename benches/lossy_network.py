"""Runs a pipeline on a cluster whose machines are joined by a slow, lossy network that is cut in turn; compares digests.

    cargo build --features cluster && sudo python3 benches/lossy_network.py target/debug/forebay PHOTOS

Scheduler, two workers and client have a network namespace each. Their packets pass through this program, by TUN devices:
each waits 20 ms, and one in a hundred is lost. In the second run, every machine is also cut off for 5 s, one after another.
Kernels with netem could do the same; this needs no module, but root.
"""

import fcntl
import heapq
import os
import random
import select
import struct
import subprocess
import sys
import tempfile
import threading
import time

DELAY, LOSS = 0.020, 0.01
CUT, BETWEEN = 5, 3
# Namespaces, by the last number of their address.
MACHINES = {1: "fb-scheduler", 2: "fb-worker-1", 3: "fb-worker-2", 4: "fb-client"}
SCHEDULER = "10.9.0.1:7100"
# From <linux/if_tun.h>.
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000


def ip(*words, check=True):
    subprocess.run(["ip", *words], check=check, capture_output=True)


def join(number, namespace):
    """Makes a namespace whose only way out is the TUN device that is returned."""
    ip("netns", "del", namespace, check=False)
    ip("netns", "add", namespace)
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    name = f"fbtun{number}"
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TUN | IFF_NO_PI))
    ip("link", "set", name, "netns", namespace)
    inside = ("netns", "exec", namespace, "ip")
    ip(*inside, "addr", "add", f"10.9.0.{number}/24", "dev", name)
    ip(*inside, "link", "set", name, "up")
    ip(*inside, "link", "set", "lo", "up")
    return device


class Network:
    """Passes IPv4 packets between machines, late or not at all."""

    def __init__(self):
        self.devices = {number: join(number, namespace) for number, namespace in MACHINES.items()}
        self.cut_off = set()
        self.passed = self.lost = 0
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def end(self):
        self.ended.set()
        self.thread.join()

    def work(self):
        waiting, chance = [], random.Random(1)
        while not self.ended.is_set():
            patience = waiting[0][0] - time.monotonic() if waiting else 0.05
            ready, _, _ = select.select(list(self.devices.values()), [], [], min(max(patience, 0), 0.05))
            for device in ready:
                self.receive(os.read(device, 2048), waiting, chance)
            while waiting and waiting[0][0] <= time.monotonic():
                _, _, packet = heapq.heappop(waiting)
                os.write(self.devices[packet[19]], packet)

    def receive(self, packet, waiting, chance):
        # Bytes 15 and 19 of an IPv4 packet are the last ones of its addresses.
        if packet[0] >> 4 != 4 or packet[19] not in self.devices:
            return
        if {packet[15], packet[19]} & self.cut_off or chance.random() < LOSS:
            self.lost += 1
            return
        self.passed += 1
        heapq.heappush(waiting, (time.monotonic() + DELAY, self.passed, packet))


def start(number, program, *words, **pipes):
    return subprocess.Popen(["ip", "netns", "exec", MACHINES[number], program, *words], **pipes)


def run(network, program, query, cut):
    """Runs `query` on the cluster; returns its digest and the seconds that it took."""
    began = time.monotonic()
    words = ["run", "-q", "-e", query, "--digest", "--cluster", SCHEDULER, "--insecure"]
    client = start(4, program, *words, stdout=subprocess.PIPE, text=True)
    for number in (2, 3, 1, 4) if cut else ():
        time.sleep(BETWEEN)
        network.cut_off.add(number)
        time.sleep(CUT)
        network.cut_off.clear()
    digest = client.communicate(timeout=600)[0].strip()
    return digest, time.monotonic() - began


def main():
    program, photos = sys.argv[1:]
    query = (f"SELECT label, random_hflip(random_resized_crop(decode_image(image), 48, 48)) AS pixels FROM images('{photos}') "
             "SHUFFLE WITHIN 100 ROWS SEED 5 BATCH 16 REPEAT 3")
    words = [program, "run", "-q", "-e", query, "--digest"]
    expected = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
    network = Network()
    with tempfile.TemporaryFile() as log:
        pipes = {"stdout": log, "stderr": log}
        processes = [start(1, program, "scheduler", "--listen", SCHEDULER, "--insecure", **pipes)]
        for number in (2, 3):
            listen = f"10.9.0.{number}:7200"
            words = ["worker", "--scheduler", SCHEDULER, "--listen", listen, "--insecure"]
            processes.append(start(number, program, *words, **pipes))
        try:
            for cut in (False, True):
                digest, seconds = run(network, program, query, cut)
                what = "the digest of one process" if digest == expected else f"ANOTHER DIGEST: {digest}, not {expected}"
                print(f"{'each machine cut off in turn' if cut else 'delay and loss'}: {what}, {seconds:.1f} s; "
                      f"{network.passed} packets passed so far, {network.lost} were lost")
        finally:
            for process in processes:
                process.kill()
                process.wait()
            network.end()
            for namespace in MACHINES.values():
                ip("netns", "del", namespace, check=False)


if __name__ == "__main__":
    main()
