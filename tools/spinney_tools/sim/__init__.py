"""`spinney sim`: a virtual radio, virtual motes that run the real firmware, and a city full of them."""
