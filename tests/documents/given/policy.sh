source .asp/env
